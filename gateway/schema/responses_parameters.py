"""What happens to every parameter of POST /v1/responses; see `gateway.schema.parameters` for what the words mean."""

from gateway.schema.parameters import Parameter

RESPONSES: tuple[Parameter, ...] = (
    Parameter("model", "honoured", "may be left out when exactly one fitting model is served"),
    Parameter(
        "input",
        "honoured",
        "a text, or up to 2048 items: messages, `function_call`, `function_call_output`, `reasoning` (kept, but not shown to "
        "the model: chat templates leave earlier thoughts out); may only be left out when an earlier turn is named; an "
        "assistant message at the end is not continued; `item_reference` is refused",
    ),
    Parameter("instructions", "honoured", "a system message before everything else; not carried over to the next response"),
    Parameter("previous_response_id", "honoured", "continues from a stored response; not together with `conversation`"),
    Parameter("conversation", "honoured", "an id, or `{id}`; input and output are appended after the answer"),
    Parameter("store", "honoured", "default true; the answer says whether it was stored"),
    Parameter("stream", "honoured", ""),
    Parameter("stream_options", "no effect", "`include_obfuscation: true` is refused"),
    Parameter("max_output_tokens", "honoured", "1 or more"),
    Parameter("temperature", "honoured", "0 (greedy) to 2"),
    Parameter("top_p", "honoured", "above 0, up to 1"),
    Parameter("presence_penalty", "honoured", "-2 to 2; from Open Responses"),
    Parameter("frequency_penalty", "honoured", "-2 to 2; from Open Responses"),
    Parameter("top_logprobs", "honoured", "0 to 20; needs `message.output_text.logprobs` in `include`"),
    Parameter(
        "include",
        "honoured",
        "`message.output_text.logprobs`; `reasoning.encrypted_content` has no effect: thoughts are given as plain text",
    ),
    Parameter(
        "text", "honoured", "`format`: `text`, `json_object`, `json_schema` (always enforced); `verbosity`: only `medium`"
    ),
    Parameter("tools", "honoured", "up to 128 functions; other types are refused: no tool runs here"),
    Parameter("tool_choice", "honoured", "`none`, `auto`, `required`, one function, or `allowed_tools`"),
    Parameter("parallel_tool_calls", "honoured", ""),
    Parameter(
        "reasoning",
        "honoured",
        "`effort`: only `none`, which sets `enable_thinking` to false in the chat template; `summary`: only `auto`, and "
        "thoughts are given word by word",
    ),
    Parameter("metadata", "honoured", "given back; up to 16 pairs, keys up to 64 and values up to 512 characters"),
    Parameter("max_tool_calls", "no effect", "it limits tools that run on the server, of which there are none"),
    Parameter("truncation", "no effect", "only `disabled`; what does not fit the context is refused, never cut"),
    Parameter("background", "no effect", "only `false`; every answer is made while the client waits"),
    Parameter("service_tier", "no effect", "only `auto` and `default`; there are no other tiers"),
    Parameter("user", "no effect", "an identifier for abuse monitoring"),
    Parameter("safety_identifier", "no effect", "an identifier for abuse monitoring"),
    Parameter("prompt_cache_key", "no effect", "a routing hint; prefixes are cached without it"),
    Parameter("prompt_cache_retention", "no effect", "only `in_memory`; the cache does not outlive the process"),
    Parameter("access_programs", "refused", "there are no access programs here"),
    Parameter("background_options", "refused", "every answer is made while the client waits"),
    Parameter("context_management", "refused", "conversations are never cut or summed up unasked"),
    Parameter("image", "refused", "the models served here answer in text"),
    Parameter("moderation", "refused", "no moderation model is served"),
    Parameter("prompt", "refused", "no prompt templates are kept here; send `instructions` and `input`"),
    Parameter("prompt_cache_options", "refused", "the prefix cache cannot be steered per request"),
)
