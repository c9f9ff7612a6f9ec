"""What one choice of the scripted backend says, as deltas. Pure: no time, no queue (`backends.fake` has those)."""

from collections.abc import Iterator

from msgspec import Struct

from backends.types import (
    Alternative,
    Chat,
    Delta,
    FinishReason,
    GenerateRequest,
    TokenLogprob,
    ToolCallDelta,
)

_ARGUMENT_PIECE_CHARS = 8
_LARGEST_CODE_POINT_BYTES = 4


class FakeCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call in a script; `arguments` is JSON text and may be wrong on purpose."""

    name: str
    arguments: str = "{}"


class FakeReply(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer: text, then calls."""

    text: str = ""
    tool_calls: tuple[FakeCall, ...] = ()


def play(request: GenerateRequest, replies: tuple[FakeReply, ...], index: int, room: int) -> Iterator[Delta]:
    """The deltas of choice `index`; `room` is the number of tokens that still fit the context. The last has `finish`."""
    limit = room if request.max_tokens is None else min(request.max_tokens, room)
    reply = replies[(_turn(request) + index) % len(replies)]
    calls = _calls(request, reply)
    data = reply.text.encode()
    if request.ignore_eos and data and not calls:
        data *= -(-limit // len(data))
    visible, count, reason, stop = _cut(request, data, limit)
    yield from _text_deltas(request, visible, index)
    hidden = count - len(visible)
    if reason is None:
        reason = "length" if count >= limit else "tool_calls" if calls else "stop"
    if reason == "tool_calls":
        for delta in _call_deltas(request, calls, index):
            count += delta.tokens
            if count > limit:
                reason = "length"
                break
            yield delta
    yield Delta(index, tokens=hidden, finish=reason, stop=stop)


def echo_delta(prompt: bytes, index: int, logprobs: int | None) -> Delta:
    """The prompt as the head of choice `index`."""
    tokens: tuple[TokenLogprob, ...] = ()
    if logprobs is not None and prompt:
        first = TokenLogprob(prompt[0], prompt[:1], None)
        tokens = (first, *_logprobs(prompt[1:], logprobs))
    return Delta(index, prompt.decode("utf-8", "replace"), logprobs=tokens)


def _turn(request: GenerateRequest) -> int:
    if not isinstance(request.prompt, Chat):
        return 0
    turns = sum(message.role == "assistant" for message in request.prompt.messages)
    return turns - request.prompt.continue_final


def _calls(request: GenerateRequest, reply: FakeReply) -> tuple[FakeCall, ...]:
    """The scripted calls, as far as the request allows; one that must call does."""
    chat = request.prompt
    if not isinstance(chat, Chat) or not chat.tools or chat.tool_choice.mode == "none":
        return ()
    wanted = chat.tool_choice.name
    calls = tuple(call for call in reply.tool_calls if wanted in (None, call.name))
    if not calls and chat.tool_choice.mode == "required":
        calls = (FakeCall(wanted or chat.tools[0].function.name),)
    return calls if chat.parallel_tool_calls else calls[:1]


def _cut(request: GenerateRequest, data: bytes, limit: int) -> tuple[bytes, int, FinishReason | None, str | None]:
    """What of `data` is shown, how many tokens that took, why it ended early (None: it did not), and by which stop string."""
    stops = [(bytes((token,)), "") for token in request.stop_token_ids] + [(stop.encode(), stop) for stop in request.stop]
    ends = [(at + len(piece), at, stop) for piece, stop in stops if (at := data.find(piece)) >= 0]
    end, start, stop = min(ends, default=(limit + 1, 0, ""))
    if end <= limit:
        return data[:start], end, "stop", stop or None
    if len(data) > limit:
        return data[:limit], limit, "length", None
    return data, len(data), None, None


def _text_deltas(request: GenerateRequest, visible: bytes, index: int) -> Iterator[Delta]:
    """One delta per character, so that no delta ends inside one; bytes that complete none come last as U+FFFD."""
    start = 0
    while start < len(visible):
        width = _width(visible[start])
        piece = visible[start : start + width]
        logprobs = () if request.logprobs is None else _logprobs(piece, request.logprobs)
        yield Delta(index, piece.decode("utf-8", "replace"), len(piece), logprobs=logprobs)
        start += width


def _width(first: int) -> int:
    return next((n for n in range(_LARGEST_CODE_POINT_BYTES, 1, -1) if first >> (7 - n) == (1 << (n + 1)) - 2), 1)


def _logprobs(data: bytes, alternatives: int) -> tuple[TokenLogprob, ...]:
    """Made-up but constant figures: the chosen token is the most likely one."""
    return tuple(
        TokenLogprob(
            byte,
            bytes((byte,)),
            -0.125,
            tuple(Alternative((byte + i) % 256, bytes(((byte + i) % 256,)), -0.125 - 2.0 * i) for i in range(alternatives)),
        )
        for byte in data
    )


def _call_deltas(request: GenerateRequest, calls: tuple[FakeCall, ...], index: int) -> Iterator[Delta]:
    for number, call in enumerate(calls):
        call_id = f"call_{request.id[-12:]}_{index}_{number}"
        yield Delta(index, tokens=len(call.name), tool_calls=(ToolCallDelta(number, call_id, call.name),))
        for start in range(0, len(call.arguments), _ARGUMENT_PIECE_CHARS):
            piece = call.arguments[start : start + _ARGUMENT_PIECE_CHARS]
            yield Delta(index, tokens=len(piece), tool_calls=(ToolCallDelta(number, arguments=piece),))
