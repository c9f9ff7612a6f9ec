"""What can be set about one model on another server. Plain data: importing this loads no HTTP client."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from backends.types import Capability

Seconds = Annotated[float, Meta(gt=0, le=86_400)]

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]{0,4096}")
_MESSAGE = frozenset({"content-type", "content-encoding", "content-length", "accept-encoding", "expect", "host"})
_CONNECTION = frozenset({"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"})
_CREDENTIALS = frozenset({"authorization", "cookie", "x-api-key", "api-key", "proxy-authorization"})


class RemoteConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="engine", tag="remote"):
    """One model on a server with an OpenAI-compatible API.

    `url` is the API's base as OpenAI's SDKs take it (`https://host/v1`): a slash at the end does not matter, and where it has
    no path `/v1` is added. `model` is the name there; empty means the public name. The key is read from the environment
    variable `api_key_env` or the file `api_key_file`, once, and is never logged. `headers` are sent with every request;
    `forward_headers` names headers of the client that are passed on (never its credentials or cookies); `strip_params` names
    top-level fields of a request that this server must not see.

    `context_length` is in tokens; 0 asks the server. `connect_timeout_s` bounds a connection, `first_token_timeout_s` the time
    from the request to the first output of a stream, `between_tokens_timeout_s` each further silence, `total_timeout_s` the
    whole request. `max_response_bytes` bounds an answer that is not a stream, and each single event of one that is. With
    `include_usage` streams are asked to end with their usage, so that they can be metered; switch it off for servers that
    refuse `stream_options`.
    """

    url: str
    model: str = ""
    api_key_env: str = ""
    api_key_file: str = ""
    headers: dict[str, str] = {}
    forward_headers: tuple[str, ...] = ()
    strip_params: tuple[str, ...] = ()
    include_usage: bool = True
    capabilities: tuple[Capability, ...] = ("chat", "completion", "embedding")
    context_length: Annotated[int, Meta(ge=0)] = 0
    connect_timeout_s: Seconds = 5.0
    first_token_timeout_s: Seconds = 120.0
    between_tokens_timeout_s: Seconds = 60.0
    total_timeout_s: Seconds = 600.0
    max_connections: Annotated[int, Meta(ge=1, le=65_536)] = 512
    keep_alive_s: Seconds = 60.0
    max_response_bytes: Annotated[int, Meta(ge=4096, le=1 << 31)] = 64 << 20
    verify_tls: bool = True
    ca_file: str = ""
    client_cert_file: str = ""
    client_key_file: str = ""

    def __post_init__(self) -> None:
        """Check what the types cannot say. Raises `ValueError`, whose text never holds a secret."""
        _check_url(self.url)
        if self.api_key_env and self.api_key_file:
            raise ValueError("api_key_env and api_key_file exclude each other")
        if self.client_key_file and not self.client_cert_file:
            raise ValueError("client_key_file needs client_cert_file")
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or name.lower() in _MESSAGE | _CONNECTION:
                raise ValueError(f"headers: {name!a} cannot be set")
            if not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"headers: the value of {name} has characters that a header cannot carry")
        for name in self.forward_headers:
            if not _HEADER_NAME.fullmatch(name) or name.lower() in _MESSAGE | _CONNECTION | _CREDENTIALS:
                raise ValueError(f"forward_headers: {name!a} is never passed on")
        for name in self.strip_params:
            if name in ("model", "stream", "messages", "prompt", "input"):
                raise ValueError(f"strip_params: a request needs {name}")

    @property
    def base_url(self) -> str:
        """The API's base, without a slash at the end."""
        base = self.url.rstrip("/")
        return base if urlsplit(base).path else f"{base}/v1"

    @property
    def root_url(self) -> str:
        """Where the endpoints outside the API live, such as `/tokenize`: the base without `/v1`."""
        return self.base_url.removesuffix("/v1")


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("url must be like https://host/v1")
    if parts.username is not None or parts.password is not None:
        raise ValueError("url must not hold credentials; use api_key_env or api_key_file")
    if parts.query or parts.fragment:
        raise ValueError("url must have no query and no fragment")
