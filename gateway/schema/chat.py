"""The body of POST /v1/chat/completions.

A parameter typed `None` is known and refused by name: any other value than null is an error that says why
(`gateway.schema.parameters`). Source: OpenAI API reference and openai-python's `CompletionCreateParams`.
"""

from typing import Any

from gateway.schema.common import GenerationFields
from gateway.schema.messages import Messages
from gateway.schema.scalars import MaxTokens, TopLogprobs
from gateway.schema.tools import Tools, WireResponseFormat, WireToolChoice


class ChatRequest(GenerationFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a chat request may carry."""

    messages: Messages
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    response_format: WireResponseFormat | None = None
    tools: Tools | None = None
    tool_choice: WireToolChoice | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    modalities: list[str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    audio: None = None
    function_call: None = None
    functions: None = None
    moderation: None = None
    prediction: None = None
    prompt_cache_options: None = None
    web_search_options: None = None
