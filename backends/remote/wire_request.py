"""Our requests in the words of the OpenAI API.

Fields that the API does not know (`top_k`, `stop_token_ids`, `ignore_eos` and so on) are sent only where they differ from their
defaults, because strict servers refuse unknown fields.
Source: OpenAI API reference, "Create chat completion", "Create completion"; vLLM and llama-server for the extensions.
"""

from typing import Any

from backends.types import (
    Chat,
    EmbedRequest,
    GenerateRequest,
    JsonSchemaFormat,
    ResponseFormat,
    Sampling,
    Text,
    TokenizeRequest,
    Tokens,
)

Fields = dict[str, Any]

_DEFAULT_SAMPLING = Sampling()
_SAMPLING_FIELDS = Sampling.__struct_fields__


def generate_fields(request: GenerateRequest, model: str, *, include_usage: bool, explicit_continue: bool) -> Fields:
    """The body of a streaming request, for `path_of(request)`.

    Args:
        explicit_continue: whether the server must be told that a last assistant message is to be continued.
    """
    fields: Fields = {"model": model, "stream": True}
    if include_usage:
        fields["stream_options"] = {"include_usage": True}
    if isinstance(request.prompt, Chat):
        fields |= _chat_fields(request, request.prompt, explicit_continue=explicit_continue)
    else:
        fields |= _completion_fields(request, request.prompt)
    if request.n != 1:
        fields["n"] = request.n
    if request.stop:
        fields["stop"] = request.stop
    if request.stop_token_ids:
        fields["stop_token_ids"] = request.stop_token_ids
    if request.ignore_eos:
        fields["ignore_eos"] = True
    if request.response_format is not None:
        fields["response_format"] = _response_format(request.response_format)
    return fields | _sampling_fields(request.sampling)


def path_of(request: GenerateRequest) -> str:
    """The endpoint, below the API's base."""
    return "/chat/completions" if isinstance(request.prompt, Chat) else "/completions"


def embed_fields(request: EmbedRequest, model: str) -> Fields:
    """The body of an embedding request. Base64 is a quarter of the size of numbers; both are understood in the answer."""
    fields: Fields = {
        "model": model,
        "input": [item.text if isinstance(item, Text) else item.ids for item in request.inputs],
        "encoding_format": "base64",
    }
    if request.dimensions is not None:
        fields["dimensions"] = request.dimensions
    return fields


def tokenize_fields(request: TokenizeRequest, model: str, *, explicit_continue: bool) -> Fields:
    """The body of a tokenize request; asks for the texts of the tokens in both ways that servers know."""
    fields: Fields = {"model": model, "add_special_tokens": request.add_special, "with_pieces": True}
    if not request.parse_special:
        fields["parse_special"] = False
    if isinstance(request.prompt, Text):
        fields["prompt"] = request.prompt.text
    else:
        fields |= _conversation_fields(request.prompt, explicit_continue=explicit_continue)
    return fields


def _chat_fields(request: GenerateRequest, chat: Chat, *, explicit_continue: bool) -> Fields:
    fields = _conversation_fields(chat, explicit_continue=explicit_continue)
    if chat.tools:
        choice = chat.tool_choice
        named = {"type": "function", "function": {"name": choice.name}}
        fields["tool_choice"] = choice.mode if choice.name is None else named
        if not chat.parallel_tool_calls:
            fields["parallel_tool_calls"] = False
    if request.max_tokens is not None:
        fields["max_tokens"] = request.max_tokens
    if request.logprobs is not None:
        fields["logprobs"] = True
        if request.logprobs:
            fields["top_logprobs"] = request.logprobs
    return fields


def _conversation_fields(chat: Chat, *, explicit_continue: bool) -> Fields:
    fields: Fields = {"messages": chat.messages}
    if chat.tools:
        fields["tools"] = chat.tools
    if chat.template_kwargs:
        fields["chat_template_kwargs"] = chat.template_kwargs
    if chat.continue_final and explicit_continue:
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
    return fields


def _completion_fields(request: GenerateRequest, prompt: Text | Tokens) -> Fields:
    # Left out, `max_tokens` means 16; null means as many as fit, where a server knows that.
    fields: Fields = {
        "prompt": prompt.text if isinstance(prompt, Text) else prompt.ids,
        "max_tokens": request.max_tokens,
    }
    if request.echo:
        fields["echo"] = True
    if request.logprobs is not None:
        fields["logprobs"] = request.logprobs
    return fields


def _response_format(wanted: ResponseFormat) -> Fields:
    if isinstance(wanted, JsonSchemaFormat):
        schema = {"name": wanted.name, "schema": wanted.schema, "strict": True}
        return {"type": "json_schema", "json_schema": schema}
    return {"type": "json_object"}


def _sampling_fields(sampling: Sampling) -> Fields:
    values = {name: getattr(sampling, name) for name in _SAMPLING_FIELDS}
    fields = {name: value for name, value in values.items() if value != getattr(_DEFAULT_SAMPLING, name)}
    # The temperature always: servers take other defaults from a model's own generation settings.
    fields["temperature"] = sampling.temperature
    return fields
