"""The Messages API: body to request. What comes back is in `messages_api_answer` and `messages_api_events`."""

from collections.abc import Sequence
from typing import Any

import msgspec

from backends.types import (
    Chat,
    Function,
    GenerateRequest,
    JsonSchemaFormat,
    Message,
    Sampling,
    TokenizeRequest,
    TokenList,
    Tool,
    ToolChoice,
)
from gateway.errors import InvalidRequest
from gateway.schema.messages_api import (
    AnyChoice,
    Choice,
    MessagesRequest,
    NamedChoice,
    NoChoice,
    OfferedTool,
    PromptFields,
)
from gateway.schema.messages_api_answer import TokenCount
from gateway.translate.generation import unsupported
from gateway.translate.messages_api_turns import to_messages
from gateway.translate.nested import check_nested


def to_request(body: MessagesRequest, *, request_id: str, model: str, tenant: str = "") -> GenerateRequest:
    """Translate a body.

    Raises:
        InvalidRequest: fields contradict each other, or ask for what is not served here.
    """
    return GenerateRequest(
        id=request_id,
        model=model,
        prompt=_to_chat(body),
        max_tokens=body.max_tokens,
        stop=tuple(stop for stop in body.stop_sequences or () if stop),
        sampling=Sampling(
            temperature=1.0 if body.temperature is None else body.temperature,
            top_k=body.top_k or 0,
            top_p=1.0 if body.top_p is None else body.top_p,
        ),
        response_format=_to_format(body),
        tenant=tenant,
    )


def to_tokenize_request(body: PromptFields, *, model: str) -> TokenizeRequest:
    """Translate a request to count tokens: the prompt is the one that an answer would begin from.

    Raises:
        InvalidRequest: as `to_request`.
    """
    _to_format(body)
    return TokenizeRequest(model=model, prompt=_to_chat(body), add_special=False)


def to_token_count(tokens: TokenList) -> bytes:
    """Encode how long a prompt is."""
    return msgspec.json.encode(TokenCount(len(tokens.ids)))


def _to_chat(body: PromptFields) -> Chat:
    _check_values(body)
    messages = to_messages(body.system, body.messages)
    tools = _to_tools(body.tools or ())
    return Chat(
        messages=messages,
        tools=tools,
        tool_choice=_to_tool_choice(body.tool_choice, tools),
        parallel_tool_calls=_may_call_in_parallel(body.tool_choice),
        continue_final=_is_begun(messages[-1]),
        template_kwargs={"enable_thinking": False} if body.thinking is not None else {},
    )


def _is_begun(last: Message) -> bool:
    return last.role == "assistant" and not last.tool_calls


def _check_values(body: PromptFields) -> None:
    if body.thinking is not None and body.thinking.type != "disabled":
        raise unsupported("thinking.type", body.thinking.type, "only 'disabled' is, models are not told how long to think")
    if body.speed not in (None, "standard"):
        raise unsupported("speed", body.speed, "only 'standard' is")
    effort = body.output_config.effort if body.output_config else None
    if effort not in (None, "high"):
        raise unsupported("output_config.effort", effort, "only 'high' is, which is the default")


def _to_format(body: PromptFields) -> JsonSchemaFormat | None:
    new, old = body.output_config.format if body.output_config else None, body.output_format
    if new is not None and old is not None:
        text = "'output_format' and 'output_config.format' are the same: give one of them."
        raise InvalidRequest(text, param="output_format", code="invalid_value")
    wanted = new or old
    if wanted is None:
        return None
    check_nested(wanted.json_schema, "output_config.format.schema" if new else "output_format.schema")
    return JsonSchemaFormat(wanted.json_schema)


def _to_tools(offered: Sequence[OfferedTool]) -> tuple[Tool, ...]:
    seen: set[str] = set()
    for index, tool in enumerate(offered):
        schema = _check_tool(tool, f"tools[{index}]")
        check_nested(schema, f"tools[{index}].input_schema")
        if tool.name in seen:
            text = f"The tool '{tool.name}' is given twice."
            raise InvalidRequest(text, param=f"tools[{index}].name", code="invalid_value")
        seen.add(tool.name)
    return tuple(
        Tool(Function(name=tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict))
        for tool in offered
    )


def _check_tool(tool: OfferedTool, where: str) -> dict[str, Any]:
    """Refuse what is not a tool of the client's own; return its schema."""
    if tool.type not in (None, "custom"):
        raise unsupported(f"{where}.type", tool.type, "only tools of your own ('custom') are, not those of Anthropic's servers")
    if tool.input_schema is None:
        param = f"{where}.input_schema"
        text = f"Missing required parameter: '{param}'."
        raise InvalidRequest(text, param=param, code="missing_required_parameter")
    if tool.defer_loading:
        raise unsupported(f"{where}.defer_loading", "true", "there is no search for tools")
    if tool.input_examples:
        raise unsupported(f"{where}.input_examples", "[…]", "put examples into 'description'")
    for caller in tool.allowed_callers or ():
        if caller != "direct":
            raise unsupported(f"{where}.allowed_callers", caller, "only 'direct' is")
    return tool.input_schema


def _to_tool_choice(choice: Choice | None, tools: tuple[Tool, ...]) -> ToolChoice:
    match choice:
        case NamedChoice(name=name):
            if all(tool.function.name != name for tool in tools):
                text = f"'tool_choice' names the tool '{name[:128]}', which is not among 'tools'."
                raise InvalidRequest(text, param="tool_choice.name", code="invalid_value")
            return ToolChoice("required", name)
        case AnyChoice():
            if not tools:
                text = "'tool_choice' is 'any', but 'tools' offers none."
                raise InvalidRequest(text, param="tool_choice", code="invalid_value")
            return ToolChoice("required")
        case NoChoice():
            return ToolChoice("none")
        case _:
            return ToolChoice()


def _may_call_in_parallel(choice: Choice | None) -> bool:
    return choice is None or isinstance(choice, NoChoice) or not choice.disable_parallel_tool_use
