"""Wire messages, tools and formats to their vocabulary."""

from collections.abc import Sequence

from backends.types import (
    Function,
    FunctionCall,
    ImagePart,
    ImageUrl,
    JsonObjectFormat,
    JsonSchemaFormat,
    Message,
    Part,
    ResponseFormat,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from gateway.errors import InvalidRequest
from gateway.schema import messages as wire
from gateway.schema import tools as wire_tools
from gateway.translate.nested import check_nested

WireParts = Sequence[wire.TextPart | wire.ImagePart | wire.RefusalPart]


def to_messages(messages: list[wire.WireMessage]) -> tuple[Message, ...]:
    """Translate a conversation.

    Raises:
        InvalidRequest: an assistant message has neither content nor tool calls.
    """
    return tuple(_message(message, index) for index, message in enumerate(messages))


def _message(message: wire.WireMessage, index: int) -> Message:
    match message:
        case wire.AssistantMessage():
            return _assistant(message, index)
        case wire.ToolMessage():
            return Message(role="tool", content=_content(message.content), name=message.name, tool_call_id=message.tool_call_id)
        case wire.SystemMessage():
            return Message(role="system", content=_content(message.content), name=message.name)
        case wire.DeveloperMessage():
            return Message(role="developer", content=_content(message.content), name=message.name)
        case wire.UserMessage():
            return Message(role="user", content=_content(message.content), name=message.name)


def _assistant(message: wire.AssistantMessage, index: int) -> Message:
    content = message.refusal if message.content is None else _content(message.content)
    if content is None and not message.tool_calls:
        param = f"messages[{index}].content"
        raise InvalidRequest(
            f"Missing required parameter: '{param}' (an assistant message needs content or tool calls).",
            param=param,
            code="missing_required_parameter",
        )
    calls = tuple(
        ToolCall(id=call.id, function=FunctionCall(call.function.name, call.function.arguments))
        for call in message.tool_calls or ()
    )
    return Message(role="assistant", content=content, name=message.name, tool_calls=calls)


def _content(content: str | WireParts) -> str | tuple[Part, ...]:
    """Join text parts to one text, which every chat template can read; keep parts where an image is among them."""
    if isinstance(content, str):
        return content
    if any(isinstance(part, wire.ImagePart) for part in content):
        return tuple(_part(part) for part in content)
    return "".join(part.text for part in map(_part, content) if isinstance(part, TextPart))


def _part(part: wire.TextPart | wire.ImagePart | wire.RefusalPart) -> Part:
    match part:
        case wire.ImagePart():
            return ImagePart(ImageUrl(part.image_url.url, part.image_url.detail or "auto"))
        case wire.RefusalPart():
            return TextPart(part.refusal)
        case wire.TextPart():
            return TextPart(part.text)


def to_tools(tools: list[wire_tools.FunctionTool] | None) -> tuple[Tool, ...]:
    """Translate the offered functions.

    Raises:
        InvalidRequest: a name is given twice, or parameters are nested too deeply.
    """
    seen: set[str] = set()
    for index, tool in enumerate(tools or ()):
        if tool.function.name in seen:
            param = f"tools[{index}].function.name"
            raise InvalidRequest(f"The function '{tool.function.name}' is given twice.", param=param, code="invalid_value")
        seen.add(tool.function.name)
        check_nested(tool.function.parameters, f"tools[{index}].function.parameters")
    return tuple(
        Tool(
            Function(
                name=tool.function.name,
                description=tool.function.description,
                parameters=tool.function.parameters,
                strict=tool.function.strict,
            )
        )
        for tool in tools or ()
    )


def to_tool_choice(choice: wire_tools.WireToolChoice | None, tools: tuple[Tool, ...]) -> ToolChoice:
    """Translate whether and what the model must call.

    Raises:
        InvalidRequest: it must call something that is not offered.
    """
    if isinstance(choice, wire_tools.NamedToolChoice):
        name = choice.function.name
        if all(tool.function.name != name for tool in tools):
            text = f"'tool_choice' names the function '{name[:64]}', which is not among 'tools'."
            raise InvalidRequest(text, param="tool_choice", code="invalid_value")
        return ToolChoice("required", name)
    if choice == "required" and not tools:
        raise InvalidRequest("'tool_choice' is 'required', but 'tools' offers none.", param="tool_choice", code="invalid_value")
    return ToolChoice(choice or "auto")


def to_response_format(wire_format: wire_tools.WireResponseFormat | None) -> ResponseFormat | None:
    """Translate the output constraint.

    Raises:
        InvalidRequest: the schema is nested too deeply or too large.
    """
    match wire_format:
        case wire_tools.JsonSchemaFormat():
            schema = wire_format.json_schema
            check_nested(schema.json_schema, "response_format.json_schema.schema")
            return JsonSchemaFormat(schema.json_schema, schema.name)
        case wire_tools.JsonObject():
            return JsonObjectFormat()
        case _:
            return None
