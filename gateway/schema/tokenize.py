"""The bodies of POST /tokenize and /detokenize, in the shapes of vLLM (`prompt`, `messages`) and llama-server (`content`).

Defaults follow the shape: special tokens are added to a `prompt` (vLLM), not to a `content` (llama-server), and not to
`messages`, whose chat template writes its own.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.schema.messages import Messages
from gateway.schema.scalars import ModelName, TokenId
from gateway.schema.tools import Tools


class TokenizeBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of `prompt`, `content` and `messages` is given."""

    model: ModelName | None = None
    prompt: str | None = None
    content: str | None = None
    messages: Messages | None = None
    tools: Tools | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    return_token_strs: bool | None = None
    with_pieces: bool | None = None


class Piece(Struct, frozen=True):
    """A token with its text, or with its bytes where they are not UTF-8 by themselves."""

    id: int
    piece: str | list[int]


class TokenizeAnswer(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`tokens` holds pieces instead of ids when `with_pieces` was asked for."""

    count: int
    max_model_len: int | None = None
    tokens: list[int] | list[Piece]
    token_strs: list[str] | None = None


class DetokenizeBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Token ids to turn into text."""

    model: ModelName | None = None
    tokens: Annotated[list[TokenId], Meta(max_length=1_048_576)]


class DetokenizeAnswer(Struct, frozen=True):
    """The text under both names: vLLM's `prompt` and llama-server's `content`."""

    prompt: str
    content: str
