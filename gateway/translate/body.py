"""Request bodies: bytes to Struct, and what is wrong with them in words that name the field.

msgspec writes "Expected `int`, got `str` - at `$.messages[0].role`"; clients want `param: "messages[0].role"` and a code.
"""

import re
from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from gateway.errors import InvalidRequest
from gateway.schema.parameters import Parameter, reason

T = TypeVar("T")

_WHERE = re.compile(r"(?P<what>.*) - at (?P<key>`key` in )?`\$(?P<path>.*)`", re.DOTALL)
_FIELD = re.compile(r"Object (?P<kind>missing required|contains unknown) field `(?P<name>.*)`", re.DOTALL)
_MAX_ECHO_CHARS = 200
_TRUNCATED = "it ends in the middle of a value, or a string holds half of a surrogate pair"

HINTS = {"type": "see the documentation for the types that are accepted here"}


class Body(Generic[T]):
    """Decodes one kind of body.

    Args:
        kind: the Struct.
        table: the parameters of the endpoint, for the reason why one is refused.
        hints: which values a field of this name may have, for those that have a few.
    """

    def __init__(self, kind: type[T], table: tuple[Parameter, ...] = (), hints: Mapping[str, str] = HINTS) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._table = table
        self._hints = hints

    def decode(self, body: bytes) -> T:
        """Read a body, whatever its content type says.

        Raises:
            InvalidRequest: it is no JSON, no object, or not what the Struct allows.
        """
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise _explain(str(error), self._table, self._hints) from None
        except msgspec.DecodeError as error:
            raise _malformed(str(error)) from None
        except RecursionError:
            raise InvalidRequest("The request body is nested too deeply.") from None


def _malformed(what: str) -> InvalidRequest:
    if what.startswith("Input data was truncated"):
        what = _TRUNCATED
    return InvalidRequest(f"The request body is not valid JSON: {what.removeprefix('JSON is malformed: ')}.")


def _explain(text: str, table: tuple[Parameter, ...], hints: Mapping[str, str]) -> InvalidRequest:
    where = _WHERE.fullmatch(text)
    what, path, is_key = (where["what"], where["path"].lstrip("."), bool(where["key"])) if where else (text, "", False)
    if field := _FIELD.fullmatch(what):
        name = field["name"][:_MAX_ECHO_CHARS]
        param = f"{path}.{name}" if path else name
        if field["kind"] == "missing required":
            return InvalidRequest(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")
        return InvalidRequest(f"Unknown parameter: '{param}'.", param=param, code="unknown_parameter")
    what = what.replace("`", "")
    if not path:
        return InvalidRequest(f"The request body must be a JSON object: {_shorten(what)}.", code="invalid_type")
    if what.startswith("Expected null, got"):
        why = reason(table, path) or "it is deprecated or makes no sense in a request"
        return InvalidRequest(f"'{path}' is not supported: {why}.", param=path, code="unsupported_parameter")
    return _wrong_value(what, path, is_key, hints)


def _wrong_value(what: str, path: str, is_key: bool, hints: Mapping[str, str]) -> InvalidRequest:
    subject = f"a key of '{path}'" if is_key else f"'{path}'"
    hint = hints.get(path.rsplit(".", 1)[-1]) if what.startswith("Invalid value") else None
    tail = f" (allowed: {hint})" if hint else ""
    code = "invalid_type" if re.match(r"Expected [^,]*(, got .*)?\Z", what) and _is_type_error(what) else "invalid_value"
    return InvalidRequest(f"Invalid {subject}: {_shorten(what)}{tail}.", param=path, code=code)


def _is_type_error(what: str) -> bool:
    return ", got " in what or not any(mark in what for mark in ("<", ">", "matching", "length"))


def _shorten(what: str) -> str:
    return what if len(what) <= _MAX_ECHO_CHARS else what[:_MAX_ECHO_CHARS] + "…"
