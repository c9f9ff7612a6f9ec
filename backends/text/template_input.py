"""A conversation of our vocabulary as the plain dicts that chat templates expect (the form `transformers` passes to them).

The developer role becomes system, text parts are joined, null content is an empty string, arguments of tool calls are objects
where they are JSON objects (templates write `arguments | tojson`) and text otherwise. Knows no template.
"""

from typing import Any

import msgspec

from backends.errors import Rejected, Unsupported
from backends.types import Chat, ImagePart, Message, Tool, ToolCall

_decode = msgspec.json.Decoder().decode
_RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})


def template_messages(chat: Chat) -> list[dict[str, Any]]:
    """Convert the messages.

    Raises:
        Rejected: there is no message, or `continue_final` has no assistant text to continue.
        Unsupported: a message holds an image.
    """
    if not chat.messages:
        raise Rejected("a conversation needs at least one message", param="messages")
    last = chat.messages[-1]
    if chat.continue_final and (last.role != "assistant" or last.tool_calls):
        where = f"messages[{len(chat.messages) - 1}]"
        raise Rejected("only an assistant message without tool calls can be continued", param=where)
    return [_message(message, i) for i, message in enumerate(chat.messages)]


def template_tools(chat: Chat) -> list[dict[str, Any]]:
    """Convert the tools on offer: none when the choice is `none`."""
    return [] if chat.tool_choice.mode == "none" else [_tool(tool) for tool in chat.tools]


def template_kwargs(chat: Chat) -> dict[str, Any]:
    """The variables that the request adds. Raises `Rejected` for names that are ours."""
    for name in chat.template_kwargs:
        if name in _RESERVED or name.startswith("_"):
            raise Rejected(f"the template variable {name[:64]!r} cannot be set by a request", param="chat_template_kwargs")
    return chat.template_kwargs


def _message(message: Message, i: int) -> dict[str, Any]:
    if isinstance(message.content, tuple):
        for j, part in enumerate(message.content):
            if isinstance(part, ImagePart):
                raise Unsupported("this model reads text only, not images", param=f"messages[{i}].content[{j}]")
    result: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role, "content": message.text}
    if message.name is not None:
        result["name"] = message.name
    if message.tool_call_id is not None:
        result["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        result["tool_calls"] = [_call(call) for call in message.tool_calls]
    return result


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": _arguments(call.function.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(text: str) -> Any:
    try:
        value = _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.function.name}
    if tool.function.description is not None:
        function["description"] = tool.function.description
    function["parameters"] = tool.function.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}
