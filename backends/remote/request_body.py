"""Changes a client's JSON body where the upstream needs it otherwise, and leaves every other byte as it is.

The body was checked before: it is one JSON object.
"""

from collections.abc import Collection

import msgspec

from backends.forwarding import ForwardRequest
from backends.remote.json_fields import encode

_USAGE_PATHS = ("/chat/completions", "/completions")
_ASK_USAGE = b'"stream_options":{"include_usage":true}'
_Fields = dict[str, msgspec.Raw]
_fields = msgspec.json.Decoder(_Fields)
_maybe_fields = msgspec.json.Decoder(_Fields | None)


class RequestBody:
    """Rewrites bodies for one upstream.

    Args:
        model: the model's name there.
        include_usage: whether streams are asked for a usage chunk where the client did not ask.
        strip: top-level fields that are left out.
    """

    def __init__(self, model: str, *, include_usage: bool, strip: Collection[str]) -> None:
        self._model = encode(model)
        self._include_usage = include_usage
        self._strip = frozenset(strip)
        self._strip_marks = tuple(encode(name) for name in strip)

    def rewrite(self, request: ForwardRequest) -> bytes:
        """The body to send."""
        body = self._name_model(request.body, request.model_span)
        ask = self._include_usage and request.stream and not request.wants_usage and request.path in _USAGE_PATHS
        # A second key of the same name is an error to some servers, so fields that may be there are looked at one by one.
        if (ask and b'"stream_options"' in body) or self._may_strip(body):
            return self._edit_fields(body, ask)
        if not ask:
            return body
        end = body.rindex(b"}")
        return body[:end] + b"," + _ASK_USAGE + b"}"

    def _may_strip(self, body: bytes) -> bool:
        """Whether a field to leave out may be there, perhaps written with escapes."""
        return bool(self._strip) and (b"\\u00" in body or any(mark in body for mark in self._strip_marks))

    def _name_model(self, body: bytes, span: tuple[int, int] | None) -> bytes:
        if span is not None:
            start, end = span
            return body if body[start:end] == self._model else body[:start] + self._model + body[end:]
        start = body.index(b"{") + 1
        comma = b"" if body[start:].lstrip().startswith(b"}") else b","
        return body[:start] + b'"model":' + self._model + comma + body[start:]

    def _edit_fields(self, body: bytes, ask: bool) -> bytes:
        fields = {name: value for name, value in _fields.decode(body).items() if name not in self._strip}
        if ask:
            options = _maybe_fields.decode(fields.get("stream_options", msgspec.Raw(b"null"))) or {}
            options["include_usage"] = msgspec.Raw(b"true")
            fields["stream_options"] = msgspec.Raw(encode(options))
        return encode(fields)
