"""Tokenize and detokenize: body to request, ids to body."""

import msgspec

from backends.types import Chat, Text, TokenizeRequest, TokenList
from gateway.errors import InvalidRequest
from gateway.schema.tokenize import DetokenizeAnswer, Piece, TokenizeAnswer, TokenizeBody
from gateway.translate.messages import to_messages, to_tools
from gateway.translate.nested import check_nested


def to_request(body: TokenizeBody, *, model: str) -> TokenizeRequest:
    """Translate a body.

    Raises:
        InvalidRequest: not exactly one of `prompt`, `content` and `messages`, or two different wishes for special tokens.
    """
    given = [name for name in ("prompt", "content", "messages") if getattr(body, name) is not None]
    if len(given) != 1:
        found = ", ".join(given) or "none"
        text = f"Exactly one of 'prompt', 'content' and 'messages' must be given, found: {found}."
        raise InvalidRequest(text, param="prompt", code="missing_required_parameter" if not given else "invalid_value")
    if None not in (body.add_special, body.add_special_tokens) and body.add_special != body.add_special_tokens:
        text = "'add_special' and 'add_special_tokens' differ: give one of them."
        raise InvalidRequest(text, param="add_special", code="invalid_value")
    if body.messages is None and (body.tools or body.chat_template_kwargs):
        raise InvalidRequest("'tools' and 'chat_template_kwargs' need 'messages'.", param="messages", code="invalid_value")
    wish = body.add_special_tokens if body.add_special is None else body.add_special
    return TokenizeRequest(
        model=model,
        prompt=_prompt(body),
        add_special=body.prompt is not None if wish is None else wish,
        parse_special=body.parse_special is not False,
    )


def _prompt(body: TokenizeBody) -> Chat | Text:
    if body.messages is None:
        return Text(body.prompt if body.prompt is not None else body.content or "")
    check_nested(body.chat_template_kwargs, "chat_template_kwargs")
    messages = to_messages(body.messages)
    last = messages[-1]
    return Chat(
        messages=messages,
        tools=to_tools(body.tools),
        continue_final=last.role == "assistant" and not last.tool_calls,
        template_kwargs=body.chat_template_kwargs or {},
    )


def to_response(tokens: TokenList, body: TokenizeBody, *, context_length: int | None) -> bytes:
    """Encode token ids, with their texts where asked for."""
    texts = [piece.decode("utf-8", "replace") for piece in tokens.pieces] if body.return_token_strs else None
    ids = [Piece(i, _piece(piece)) for i, piece in zip(tokens.ids, tokens.pieces, strict=True)] if body.with_pieces else None
    return msgspec.json.encode(
        TokenizeAnswer(
            count=len(tokens.ids),
            max_model_len=context_length,
            tokens=list(tokens.ids) if ids is None else ids,
            token_strs=texts,
        )
    )


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def to_text_response(text: str) -> bytes:
    """Encode the text of a detokenize request."""
    return msgspec.json.encode(DetokenizeAnswer(text, text))
