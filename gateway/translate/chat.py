"""Chat completions: body to request, answer to body."""

import msgspec

from backends.types import Chat, GenerateRequest
from gateway.errors import InvalidRequest
from gateway.schema.chat import ChatRequest
from gateway.schema.chat_response import (
    AnsweredFunction,
    AnsweredMessage,
    AnsweredToolCall,
    ChatChoice,
    ChatCompletion,
)
from gateway.translate.answer import Answer, Choice
from gateway.translate.generation import check_shared, to_sampling, to_stop, to_wire_usage, unsupported
from gateway.translate.logprobs import to_chat_logprobs
from gateway.translate.messages import to_messages, to_response_format, to_tool_choice, to_tools
from gateway.translate.nested import check_nested
from gateway.translate.stamp import Stamp


def to_request(body: ChatRequest, *, request_id: str, model: str, tenant: str = "") -> GenerateRequest:
    """Translate a body.

    Raises:
        InvalidRequest: fields contradict each other, or ask for what is not served here.
    """
    check_shared(body)
    _check_values(body)
    return GenerateRequest(
        id=request_id,
        model=model,
        prompt=_to_chat(body),
        max_tokens=_max_tokens(body),
        n=body.n or 1,
        stop=to_stop(body),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        sampling=to_sampling(body),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        response_format=to_response_format(body.response_format),
        tenant=tenant,
    )


def _check_values(body: ChatRequest) -> None:
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequest("'top_logprobs' needs 'logprobs' to be true.", param="top_logprobs", code="invalid_value")
    if body.reasoning_effort not in (None, "none"):
        raise unsupported("reasoning_effort", body.reasoning_effort, "only 'none' is")
    if body.verbosity not in (None, "medium"):
        raise unsupported("verbosity", body.verbosity, "only 'medium' is")
    if body.prompt_cache_retention not in (None, "in_memory", "in-memory"):
        raise unsupported("prompt_cache_retention", body.prompt_cache_retention, "only 'in_memory' is")
    for modality in body.modalities or ():
        if modality != "text":
            raise unsupported("modalities", modality, "only 'text' is")


def _max_tokens(body: ChatRequest) -> int | None:
    new, old = body.max_completion_tokens, body.max_tokens
    if new is not None and old is not None and new != old:
        text = f"'max_tokens' ({old}) and 'max_completion_tokens' ({new}) differ: give one of them."
        raise InvalidRequest(text, param="max_tokens", code="invalid_value")
    return old if new is None else new


def _to_chat(body: ChatRequest) -> Chat:
    messages = to_messages(body.messages)
    tools = to_tools(body.tools)
    check_nested(body.chat_template_kwargs, "chat_template_kwargs")
    # An explicit template variable is more specific than the effort, so it wins.
    defaults = {"enable_thinking": False} if body.reasoning_effort == "none" else {}
    last = messages[-1]
    return Chat(
        messages=messages,
        tools=tools,
        tool_choice=to_tool_choice(body.tool_choice, tools),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        continue_final=last.role == "assistant" and not last.tool_calls,
        template_kwargs=defaults | (body.chat_template_kwargs or {}),
    )


def to_response(answer: Answer, stamp: Stamp, *, logprobs: bool) -> bytes:
    """Encode a whole answer.

    Raises:
        Failed: the backend left a choice unfinished.
    """
    choices = [
        ChatChoice(
            index=index,
            message=_message(choice),
            logprobs=to_chat_logprobs(choice.logprobs) if logprobs else None,
            finish_reason=answer.finish_of(index),
        )
        for index, choice in enumerate(answer.choices)
    ]
    return msgspec.json.encode(
        ChatCompletion(
            id=stamp.id,
            object="chat.completion",
            created=stamp.created,
            model=stamp.model,
            system_fingerprint=stamp.fingerprint,
            choices=choices,
            usage=to_wire_usage(answer.usage),
        )
    )


def _message(choice: Choice) -> AnsweredMessage:
    text = choice.text
    if not choice.calls:
        return AnsweredMessage("assistant", text)
    calls = [
        AnsweredToolCall(call.id, "function", AnsweredFunction(call.name, "".join(call.arguments)))
        for _, call in sorted(choice.calls.items())
    ]
    return AnsweredMessage("assistant", text or None, tool_calls=calls)
