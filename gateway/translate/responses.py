"""Responses: body to request, and the response object that an answer will fill."""

import time
from collections.abc import Sequence

from backends.types import Chat, GenerateRequest, Message, Sampling
from gateway.errors import InvalidRequest
from gateway.schema.responses import ConversationName, PlainText, ResponseRequest
from gateway.schema.responses_answer import ReasoningSettings, ResponseObject, TextSettings
from gateway.schema.responses_items import MAX_ITEMS, InputItem
from gateway.translate.generation import unsupported
from gateway.translate.responses_items import to_messages
from gateway.translate.responses_tools import to_response_format, to_tool_choice, to_tools

_LOGPROBS = "message.output_text.logprobs"
_INCLUDABLE = (_LOGPROBS, "reasoning.encrypted_content")


def check(body: ResponseRequest) -> None:
    """Refuse values that are legal in the API and cannot be honoured here, and fields that contradict each other.

    Raises:
        InvalidRequest: names the parameter and what is possible instead.
    """
    if body.background:
        raise unsupported("background", "true", "every answer is made while the client waits")
    if body.truncation not in (None, "disabled"):
        raise unsupported("truncation", body.truncation, "what does not fit the context is refused, never cut")
    if body.service_tier not in (None, "auto", "default"):
        raise unsupported("service_tier", body.service_tier, "only 'auto' and 'default' exist here")
    if body.prompt_cache_retention not in (None, "in_memory", "in-memory"):
        raise unsupported("prompt_cache_retention", body.prompt_cache_retention, "only 'in_memory' is")
    if body.text is not None and body.text.verbosity not in (None, "medium"):
        raise unsupported("text.verbosity", body.text.verbosity, "only 'medium' is")
    if body.previous_response_id is not None and body.conversation is not None:
        text = "'previous_response_id' and 'conversation' exclude each other: give one of them."
        raise InvalidRequest(text, param="previous_response_id", code="invalid_value")
    _check_reasoning(body)
    _check_include(body)
    _check_stream(body)


def _check_reasoning(body: ResponseRequest) -> None:
    if body.reasoning is None:
        return
    if body.reasoning.effort not in (None, "none"):
        raise unsupported("reasoning.effort", body.reasoning.effort, "only 'none' is")
    for name in ("summary", "generate_summary"):
        value = getattr(body.reasoning, name)
        if value not in (None, "auto"):
            raise unsupported(f"reasoning.{name}", value, "thoughts are given word by word and not summed up")


def _check_include(body: ResponseRequest) -> None:
    for index, name in enumerate(body.include or ()):
        if name not in _INCLUDABLE:
            raise unsupported(f"include[{index}]", name, f"only '{_LOGPROBS}' is")
    if body.top_logprobs and not _wants_logprobs(body):
        text = f"'top_logprobs' needs '{_LOGPROBS}' in 'include'."
        raise InvalidRequest(text, param="top_logprobs", code="invalid_value")


def _check_stream(body: ResponseRequest) -> None:
    if body.stream_options is None:
        return
    if not body.stream:
        text = "'stream_options' is only allowed when 'stream' is true."
        raise InvalidRequest(text, param="stream_options", code="invalid_value")
    if body.stream_options.include_obfuscation:
        raise unsupported("stream_options.include_obfuscation", "true", "streams are not padded here")


def _wants_logprobs(body: ResponseRequest) -> bool:
    return _LOGPROBS in (body.include or ())


def to_request(
    body: ResponseRequest, items: Sequence[InputItem], *, request_id: str, model: str, tenant: str = ""
) -> GenerateRequest:
    """Translate a body that passed `check`, together with all items: those of earlier turns, then the new ones.

    Raises:
        InvalidRequest: there is nothing to answer, too much, or tools and schemas contradict each other.
    """
    return GenerateRequest(
        id=request_id,
        model=model,
        prompt=_to_chat(body, items),
        max_tokens=body.max_output_tokens,
        sampling=Sampling(
            temperature=1.0 if body.temperature is None else body.temperature,
            top_p=1.0 if body.top_p is None else body.top_p,
            presence_penalty=body.presence_penalty or 0.0,
            frequency_penalty=body.frequency_penalty or 0.0,
        ),
        logprobs=(body.top_logprobs or 0) if _wants_logprobs(body) else None,
        response_format=to_response_format(body.text.format if body.text else None),
        tenant=tenant,
    )


def _to_chat(body: ResponseRequest, items: Sequence[InputItem]) -> Chat:
    if len(items) > MAX_ITEMS:
        text = f"The conversation has {len(items)} items with those of earlier turns, the limit is {MAX_ITEMS}."
        raise InvalidRequest(text, param="input", code="invalid_value")
    messages = to_messages(items)
    if not messages:
        text = "Missing required parameter: 'input' (it may only be left out when an earlier turn is named)."
        raise InvalidRequest(text, param="input", code="missing_required_parameter")
    if body.instructions is not None:
        messages = (Message(role="system", content=body.instructions), *messages)
    choice = body.tool_choice or "auto"
    tools = to_tools(body.tools or [], choice)
    effort = body.reasoning.effort if body.reasoning else None
    return Chat(
        messages=messages,
        tools=tools,
        tool_choice=to_tool_choice(choice, tools),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        template_kwargs={"enable_thinking": False} if effort == "none" else {},
    )


def to_object(body: ResponseRequest, *, response_id: str, model: str) -> ResponseObject:
    """The response before anything was generated: what was asked for, with the defaults of the API filled in."""
    conversation = body.conversation
    return ResponseObject(
        id=response_id,
        created_at=int(time.time()),
        model=model,
        conversation=ConversationName(conversation) if isinstance(conversation, str) else conversation,
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        max_tool_calls=body.max_tool_calls,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        previous_response_id=body.previous_response_id,
        prompt_cache_key=body.prompt_cache_key,
        reasoning=ReasoningSettings(body.reasoning.effort if body.reasoning else None, None),
        safety_identifier=body.safety_identifier,
        store=body.store is not False,
        temperature=1.0 if body.temperature is None else body.temperature,
        text=TextSettings((body.text.format if body.text else None) or PlainText(), "medium"),
        tool_choice=body.tool_choice or "auto",
        tools=body.tools or [],
        top_logprobs=body.top_logprobs or 0,
        top_p=1.0 if body.top_p is None else body.top_p,
        user=body.user,
        metadata=body.metadata or {},
    )
