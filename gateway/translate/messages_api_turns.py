"""Turns of the Messages API to messages of the vocabulary.

A user's turn may hold results of tools between texts: each result becomes a message of its own, at its place. What the model
thought is left out: chat templates show no thoughts of earlier turns, and encrypted ones nobody here can read. Turns of one
role in a row become one, as the API promises and as some chat templates demand.
"""

from collections.abc import Iterator, Sequence

import msgspec

from backends.types import FunctionCall, ImagePart, ImageUrl, Message, Part, TextPart, ToolCall
from gateway.errors import InvalidRequest
from gateway.schema.messages_api_blocks import (
    AssistantTurn,
    Base64Source,
    ImageBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Turn,
    UserTurn,
)
from gateway.translate.nested import check_nested

_BETWEEN_TURNS = "\n\n"
_ERROR = "Error: "

Content = str | tuple[Part, ...]


def to_messages(system: str | Sequence[TextBlock] | None, turns: Sequence[Turn]) -> tuple[Message, ...]:
    """Translate a conversation.

    Raises:
        InvalidRequest: a turn other than the last is empty, or the input of a call is nested too deeply.
    """
    messages: list[Message] = []
    if system:
        messages.append(Message(role="system", content=_content(system)))
    for index, turn in enumerate(turns):
        for message in _translate(turn, index, is_last=index == len(turns) - 1):
            if messages and messages[-1].role == message.role and message.role in ("user", "assistant"):
                messages[-1] = _merged(messages[-1], message)
            else:
                messages.append(message)
    return tuple(messages)


def _translate(turn: Turn, index: int, *, is_last: bool) -> Iterator[Message]:
    if isinstance(turn, AssistantTurn):
        return _assistant(turn, index, is_last=is_last)
    if not turn.content:
        raise _empty(index)
    if isinstance(turn, UserTurn):
        return _user(turn)
    return iter((Message(role="system", content=_content(turn.content)),))


def _empty(index: int) -> InvalidRequest:
    param = f"messages[{index}].content"
    text = f"'{param}' is empty: only an assistant message at the end may be."
    return InvalidRequest(text, param=param, code="invalid_value")


def _user(turn: UserTurn) -> Iterator[Message]:
    if isinstance(turn.content, str):
        yield Message(role="user", content=turn.content)
        return
    said: list[TextBlock | ImageBlock] = []
    for block in turn.content:
        if not isinstance(block, ToolResultBlock):
            said.append(block)
            continue
        if said:
            yield Message(role="user", content=_content(said))
            said = []
        yield Message(role="tool", content=_result(block), tool_call_id=block.tool_use_id)
    if said:
        yield Message(role="user", content=_content(said))


def _result(block: ToolResultBlock) -> Content:
    content = _content(block.content or "")
    if not block.is_error:
        return content
    return _ERROR + content if isinstance(content, str) else (TextPart(_ERROR), *content)


def _assistant(turn: AssistantTurn, index: int, *, is_last: bool) -> Iterator[Message]:
    blocks = [TextBlock(text=turn.content)] if isinstance(turn.content, str) else turn.content
    text = "".join(block.text for block in blocks if isinstance(block, TextBlock))
    calls = tuple(_call(block, index, at) for at, block in enumerate(blocks) if isinstance(block, ToolUseBlock))
    if text or calls or is_last:
        yield Message(role="assistant", content=text or (None if calls else ""), tool_calls=calls)
    elif not blocks or any(isinstance(block, TextBlock) for block in blocks):
        raise _empty(index)


def _call(block: ToolUseBlock, index: int, at: int) -> ToolCall:
    check_nested(block.input, f"messages[{index}].content[{at}].input")
    return ToolCall(id=block.id, function=FunctionCall(block.name, msgspec.json.encode(block.input).decode()))


def _content(content: str | Sequence[TextBlock | ImageBlock]) -> Content:
    """Join texts to one, which every chat template can read; keep parts where an image is among them."""
    if isinstance(content, str):
        return content
    if any(isinstance(block, ImageBlock) for block in content):
        return tuple(TextPart(block.text) if isinstance(block, TextBlock) else _image(block) for block in content)
    return "".join(block.text for block in content if isinstance(block, TextBlock))


def _image(block: ImageBlock) -> ImagePart:
    source = block.source
    url = f"data:{source.media_type};base64,{source.data}" if isinstance(source, Base64Source) else source.url
    return ImagePart(ImageUrl(url))


def _merged(first: Message, second: Message) -> Message:
    if isinstance(first.content, tuple) or isinstance(second.content, tuple):
        content: Content | None = (*_parts(first.content), *_parts(second.content))
    else:
        content = _BETWEEN_TURNS.join(text for text in (first.content, second.content) if text) or second.content
    return msgspec.structs.replace(first, content=content, tool_calls=first.tool_calls + second.tool_calls)


def _parts(content: Content | None) -> tuple[Part, ...]:
    return (TextPart(content),) if isinstance(content, str) else content or ()
