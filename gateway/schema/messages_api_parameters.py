"""What happens to every parameter of the Messages API: the tables behind docs/api.md and behind the text of refusals.

The first two tables hold the parameters of the two requests, the third what may stand inside of them. A test compares them with
the Structs and with the types of anthropic-sdk-python.
"""

from gateway.schema.parameters import Parameter

_PROMPT = (
    Parameter("model", "honoured", "may be left out when exactly one fitting model is served"),
    Parameter(
        "messages",
        "honoured",
        "1 to 2048, of `user`, `assistant` and `system`; turns of one role in a row become one; an assistant turn at the end "
        "is continued",
    ),
    Parameter("system", "honoured", "a text or text blocks"),
    Parameter("tools", "honoured", "up to 128 of the client's own (`custom`); tools of Anthropic's servers are refused"),
    Parameter("tool_choice", "honoured", "`auto`, `any`, `tool`, `none`, each but the last with `disable_parallel_tool_use`"),
    Parameter("thinking", "honoured", "only `disabled`, which sets `enable_thinking` to false in the chat template"),
    Parameter("output_config", "honoured", "`format` (`json_schema`); of `effort` only `high`, which is the default"),
    Parameter("output_format", "honoured", "the older name of `output_config.format`; give one of them"),
    Parameter("cache_control", "no effect", "prefixes are cached without it"),
    Parameter("speed", "no effect", "only `standard`; there is no faster mode"),
    Parameter("billing_policy", "refused", "nothing is billed here"),
    Parameter("compaction", "refused", "conversations are not compacted"),
    Parameter("context_management", "refused", "the prompt is what was sent: nothing is edited out of it"),
    Parameter("mcp_servers", "refused", "the gateway calls no MCP servers"),
    Parameter("thread", "refused", "nothing is stored here"),
)

MESSAGES: tuple[Parameter, ...] = (
    Parameter("max_tokens", "honoured", "required, 1 or more; 0, which only fills a cache, is refused"),
    *_PROMPT,
    Parameter("stream", "honoured", ""),
    Parameter("stop_sequences", "honoured", "up to 64, each up to 512 characters; empty strings are ignored"),
    Parameter("temperature", "honoured", "0 (greedy) to 1"),
    Parameter("top_p", "honoured", "above 0, up to 1"),
    Parameter("top_k", "honoured", "0 is off"),
    Parameter("metadata", "no effect", "`user_id`: an identifier for abuse monitoring, up to 512 characters"),
    Parameter("service_tier", "no effect", "`auto` and `standard_only`; there are no other tiers"),
    Parameter("container", "refused", "no code is executed here"),
    Parameter("diagnostics", "refused", "the prefix cache keeps no record of earlier requests"),
    Parameter("fallback_credit_token", "refused", "nothing is billed here"),
    Parameter("fallbacks", "refused", "which models stand in for another is configured, not asked for"),
    Parameter("inference_geo", "refused", "where models run is configured, not asked for"),
)

COUNT_TOKENS: tuple[Parameter, ...] = _PROMPT

INSIDE: tuple[Parameter, ...] = (
    Parameter("text block", "honoured", "blocks in a row are joined; `cache_control` and `citations` have no effect"),
    Parameter("image block", "honoured", "`base64` or `url`, also in a `tool_result`; a model that reads text only refuses it"),
    Parameter("tool_use block", "honoured", "in assistant turns"),
    Parameter(
        "tool_result block",
        "honoured",
        "in user turns; becomes a tool's message at its place among the texts; with `is_error` its text begins with `Error: `",
    ),
    Parameter(
        "thinking and redacted_thinking blocks",
        "no effect",
        "in assistant turns; what a model thought in earlier turns is not part of the prompt: chat templates leave it out too",
    ),
    Parameter("blocks of any other type", "refused", "documents, search results and server tools are not served here"),
    Parameter("tools[].strict", "honoured", "where an engine constrains calls it does so for every tool"),
    Parameter("tools[].eager_input_streaming", "no effect", "inputs are always streamed as they are written"),
    Parameter("tools[].cache_control", "no effect", "prefixes are cached without it"),
    Parameter("tools[].allowed_callers", "no effect", 'only `["direct"]`; no code is executed here'),
    Parameter("tools[].defer_loading", "no effect", "only `false`; there is no search for tools"),
    Parameter("tools[].input_examples", "refused", "chat templates have no place for them; put them into `description`"),
)
