"""Reads what the bytes of an answer mean: when content came, how many tokens there were, what went wrong.

Source: WHATWG HTML, section 9.2 (event streams).
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from benchmarks.wire import Reply


class Answer(msgspec.Struct):
    """One request as it is counted. `arrivals` are the seconds since sending at which pieces of content arrived."""

    status: int = 0
    arrivals: list[float] = msgspec.field(default_factory=list)
    e2e_s: float = 0.0
    tokens: int = 0
    cached_tokens: int = 0
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the request was answered as it should be."""
        return self.status == 200 and not self.error


def read_answer(reply: Reply, stream: bool) -> Answer:
    """Read a reply. A stream that is not one, or does not end as one, is an error."""
    answer = Answer(status=reply.status, e2e_s=reply.e2e_s, error=reply.error)
    if answer.error:
        return answer
    whole = b"".join([data for _, data in reply.pieces])
    if answer.status != 200:
        answer.error = whole[:200].decode(errors="replace") or "no body"
        return answer
    try:
        if stream:
            _read_events(reply, answer)
        else:
            answer.arrivals.append(reply.e2e_s)
            _read_usage(msgspec.json.decode(whole), answer)
    except msgspec.MsgspecError as error:
        answer.error = repr(error)[:200]
    return answer


def _read_events(reply: Reply, answer: Answer) -> None:
    done = False
    for at, line in _lines(reply):
        if not line.startswith(b"data:"):
            continue
        payload = line[5:].strip()
        done |= payload == b"[DONE]"
        if payload != b"[DONE]":
            _read_chunk(msgspec.json.decode(payload), answer, at)
    if not done and not answer.error:
        answer.error = "the stream ended without [DONE]"


def _lines(reply: Reply) -> Iterator[tuple[float, bytes]]:
    """Cut a body into lines, each with the time at which it was complete."""
    rest = b""
    for at, piece in reply.pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield at, line


def _read_chunk(chunk: dict[str, Any], answer: Answer, at: float) -> None:
    if "error" in chunk:
        answer.error = str(chunk["error"])[:200]
    for choice in chunk.get("choices") or ():
        if (choice.get("delta") or {}).get("content") or choice.get("text"):
            answer.arrivals.append(at)
    answer.tokens = max(answer.tokens, len(answer.arrivals))
    _read_usage(chunk, answer)


def _read_usage(message: dict[str, Any], answer: Answer) -> None:
    if usage := message.get("usage"):
        answer.tokens = usage.get("completion_tokens", answer.tokens)
        answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
