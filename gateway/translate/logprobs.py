"""Log probabilities in the two shapes of the API.

A token may be part of a character. Chat shows it with U+FFFD and exact `bytes`; the legacy shape has no bytes, so it is written
as `bytes:\\xe2\\x80`, as OpenAI does.
"""

import codecs

from backends.types import Alternative, TokenLogprob
from gateway.schema.chat_response import ChatLogprobs, ChatTokenLogprob, TopLogprob
from gateway.schema.completions import LegacyTokenLogprobs

LOWEST = -9999.0
"""JSON has no minus infinity, and clients expect a number."""


def to_chat_logprobs(tokens: list[TokenLogprob] | tuple[TokenLogprob, ...]) -> ChatLogprobs:
    """The `logprobs` object of a chat choice or chunk."""
    return ChatLogprobs([_chat_token(token) for token in tokens])


def _chat_token(token: TokenLogprob) -> ChatTokenLogprob:
    top = [TopLogprob(_text(other.piece), max(other.logprob, LOWEST), list(other.piece)) for other in token.top]
    return ChatTokenLogprob(_text(token.piece), _clamp(token.logprob), list(token.piece), top)


def _text(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")


def _clamp(logprob: float | None) -> float:
    return LOWEST if logprob is None else max(logprob, LOWEST)


class LegacyLogprobs:
    """Builds legacy objects piece by piece: offsets go on from chunk to chunk.

    Args:
        alternatives: how many were asked for; 0 leaves `top_logprobs` null.
    """

    def __init__(self, alternatives: int) -> None:
        self._alternatives = alternatives
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def take(self, tokens: list[TokenLogprob] | tuple[TokenLogprob, ...]) -> LegacyTokenLogprobs:
        """The object for the next tokens."""
        offsets: list[int] = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(self._decoder.decode(token.piece))
        return LegacyTokenLogprobs(
            tokens=[_legacy_text(token.piece) for token in tokens],
            token_logprobs=[None if token.logprob is None else max(token.logprob, LOWEST) for token in tokens],
            top_logprobs=[_legacy_top(token) for token in tokens] if self._alternatives else None,
            text_offset=offsets,
        )


def _legacy_text(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def _legacy_top(token: TokenLogprob) -> dict[str, float] | None:
    """The alternatives and, as the API promises, the chosen token itself."""
    if token.logprob is None:
        return None
    chosen = Alternative(token.id, token.piece, token.logprob)
    return {_legacy_text(other.piece): max(other.logprob, LOWEST) for other in (*token.top, chosen)}
