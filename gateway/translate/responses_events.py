"""What happens to a draft as the named events of a response stream.

`response.created` and `response.in_progress`; per item `added`, its deltas and `done`; then `response.completed` or
`response.incomplete`. What breaks in the middle is an `error` event followed by `response.failed`. Every event has the next
`sequence_number`. The stream ends with `[DONE]`, which Open Responses demands and the OpenAI SDKs skip. Source: OpenAI API
reference, "Streaming events"; the Open Responses specification, "Streaming".
"""

import msgspec

from backends.types import Delta
from gateway.errors import ApiError, error_body
from gateway.schema.responses_answer import ReasoningPart, TextPart
from gateway.translate.logprobs import to_chat_logprobs
from gateway.translate.responses_draft import Draft, Step
from gateway.translate.responses_draft_items import DraftCall, DraftItem, DraftMessage, DraftReasoning, DraftText

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, dict[str, str | None]]).decode


def _head(name: str) -> bytes:
    """The bytes of an event up to the sequence number."""
    return f'event: {name}\ndata: {{"type":"{name}","sequence_number":'.encode()


_TEXT_DELTA = _head("response.output_text.delta")
_REASONING_DELTA = _head("response.reasoning_text.delta")
_ARGUMENTS_DELTA = _head("response.function_call_arguments.delta")
_EMPTY_TEXT = _encode(TextPart("", [], []))
_EMPTY_REASONING = _encode(ReasoningPart(""))


class ResponseEvents:
    """Encodes one stream. Each delta must have been added to the draft before it is encoded.

    Args:
        draft: the response that is told.
    """

    done = b"data: [DONE]\n\n"

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._number = -1
        self._places: dict[int, bytes] = {}

    def opening(self) -> bytes:
        """What comes before everything else, once."""
        if self._number >= 0:
            return b""
        response = b'"response":' + self._draft.body()
        return self._event("response.created", response) + self._event("response.in_progress", response)

    def encode(self, delta: Delta) -> bytes:
        """The events of a delta; empty when it shows nothing."""
        steps = self._draft.steps
        if not steps and delta.usage is None:
            return b""
        opening = self.opening()
        if len(steps) == 1 and not opening and delta.usage is None:
            return self._step(steps[0])
        events = [opening, *map(self._step, steps)]
        if delta.usage is not None:
            response = self._draft.response
            events.append(self._event(f"response.{response.status}", b'"response":' + self._draft.body()))
        return b"".join(events)

    def error(self, error: ApiError) -> bytes:
        """Say what broke, both flat and nested, as clients look for it in either place; then give the failed response."""
        opening = self.opening()
        told = _decode(error_body(error))["error"]
        flat = {"code": told["code"], "message": told["message"], "param": told["param"], "error": told}
        self._draft.fail(told["code"] or "server_error", told["message"] or "")
        event = self._event("error", _encode(flat)[1:-1])
        return opening + event + self._event("response.failed", b'"response":' + self._draft.body())

    def _event(self, name: str, fields: bytes) -> bytes:
        self._number += 1
        return b"%b%d,%b}\n\n" % (_head(name), self._number, fields)

    def _step(self, step: Step) -> bytes:
        item = step.item
        if step.kind == "open":
            return self._open(item)
        if step.kind == "close":
            return self._close(item)
        self._number += 1
        place, text = self._places[item.index], _encode(step.text)
        match item:
            case DraftMessage():
                logprobs = _encode(to_chat_logprobs(step.logprobs).content) if step.logprobs else b"[]"
                return b'%b%d,%b"delta":%b,"logprobs":%b}\n\n' % (_TEXT_DELTA, self._number, place, text, logprobs)
            case DraftReasoning():
                return b'%b%d,%b"delta":%b}\n\n' % (_REASONING_DELTA, self._number, place, text)
            case DraftCall():
                return b'%b%d,%b"delta":%b}\n\n' % (_ARGUMENTS_DELTA, self._number, place, text)

    def _open(self, item: DraftItem) -> bytes:
        index = b'"output_index":%d,' % item.index
        place = b'"item_id":"%b",%b' % (item.id.encode(), index)
        added = self._event("response.output_item.added", index + b'"item":' + _encode(item.opened()))
        if isinstance(item, DraftCall):
            self._places[item.index] = place
            return added
        self._places[item.index] = place = place + b'"content_index":0,'
        part = _EMPTY_TEXT if isinstance(item, DraftMessage) else _EMPTY_REASONING
        return added + self._event("response.content_part.added", place + b'"part":' + part)

    def _close(self, item: DraftItem) -> bytes:
        events = self._close_call(item) if isinstance(item, DraftCall) else self._close_text(item)
        index = b'"output_index":%d,' % item.index
        return events + self._event("response.output_item.done", index + b'"item":' + _encode(item.item()))

    def _close_call(self, call: DraftCall) -> bytes:
        arguments = b'"arguments":' + _encode("".join(call.arguments))
        return self._event("response.function_call_arguments.done", self._places[call.index] + arguments)

    def _close_text(self, item: DraftText) -> bytes:
        place, part = self._places[item.index], item.part()
        if isinstance(part, TextPart):
            fields = b'"text":%b,"logprobs":%b' % (_encode(part.text), _encode(part.logprobs))
            done = self._event("response.output_text.done", place + fields)
        else:
            done = self._event("response.reasoning_text.done", place + b'"text":' + _encode(part.text))
        return done + self._event("response.content_part.done", place + b'"part":' + _encode(part))
