"""Tools, tool choice and text format of the Responses API to our vocabulary. They are flatter than those of chat."""

from backends.types import Function, JsonObjectFormat, JsonSchemaFormat, ResponseFormat, Tool, ToolChoice
from gateway.errors import InvalidRequest
from gateway.schema import responses as wire
from gateway.translate.nested import check_nested


def to_tools(tools: list[wire.FunctionTool], choice: wire.ResponseToolChoice) -> tuple[Tool, ...]:
    """Translate the offered functions; with `allowed_tools` only those that are allowed.

    Raises:
        InvalidRequest: a name is given twice, is allowed but not offered, or parameters are nested too deeply.
    """
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in names:
            param = f"tools[{index}].name"
            raise InvalidRequest(f"'tools' offers the function '{tool.name}' twice.", param=param, code="invalid_value")
        names.add(tool.name)
        check_nested(tool.parameters, f"tools[{index}].parameters")
    if isinstance(choice, wire.AllowedTools):
        allowed = {function.name for function in choice.tools}
        for name in sorted(allowed - names):
            raise _not_offered(name)
        names = allowed
    return tuple(
        Tool(Function(name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict))
        for tool in tools
        if tool.name in names
    )


def to_tool_choice(choice: wire.ResponseToolChoice, tools: tuple[Tool, ...]) -> ToolChoice:
    """Translate whether and what the model must call.

    Raises:
        InvalidRequest: it must call something that is not offered.
    """
    if isinstance(choice, wire.NamedFunction):
        if all(tool.function.name != choice.name for tool in tools):
            raise _not_offered(choice.name)
        return ToolChoice("required", choice.name)
    if isinstance(choice, wire.AllowedTools):
        return ToolChoice(choice.mode)
    if choice == "required" and not tools:
        raise InvalidRequest("'tool_choice' is 'required', but 'tools' offers none.", param="tool_choice", code="invalid_value")
    return ToolChoice(choice)


def _not_offered(name: str) -> InvalidRequest:
    text = f"'tool_choice' names the function '{name[:64]}', which is not among 'tools'."
    return InvalidRequest(text, param="tool_choice", code="invalid_value")


def to_response_format(text_format: wire.TextFormat | None) -> ResponseFormat | None:
    """Translate the output constraint.

    Raises:
        InvalidRequest: the schema is nested too deeply or too large.
    """
    match text_format:
        case wire.JsonSchema():
            check_nested(text_format.json_schema, "text.format.schema")
            return JsonSchemaFormat(text_format.json_schema, text_format.name)
        case wire.JsonObject():
            return JsonObjectFormat()
        case _:
            return None
