"""What happens to every request parameter: the table behind docs/api.md and behind the text of refusals.

`honoured` parameters do what the API says, within the range that is noted. `no effect` parameters are accepted because the API
itself defines them so for what is served here. `refused` ones get a 400 with their name. A test compares the table with the
Structs and with docs/api.md.
"""

from typing import Literal, NamedTuple

Treatment = Literal["honoured", "no effect", "refused"]


class Parameter(NamedTuple):
    """One row: a name, what is done with it, and the range or the reason."""

    name: str
    treatment: Treatment
    note: str


_SHARED = (
    Parameter("model", "honoured", "may be left out when exactly one fitting model is served"),
    Parameter("stream", "honoured", ""),
    Parameter("stream_options", "honoured", "`include_usage`; `include_obfuscation: true` is refused"),
    Parameter("n", "honoured", "1 to 128; a backend may allow fewer"),
    Parameter("stop", "honoured", "a string or up to 4, each up to 512 characters; empty strings are ignored"),
    Parameter("temperature", "honoured", "0 (greedy) to 2"),
    Parameter("top_p", "honoured", "above 0, up to 1"),
    Parameter("top_k", "honoured", "extension; 0 is off"),
    Parameter("min_p", "honoured", "extension; 0 to 1"),
    Parameter("frequency_penalty", "honoured", "-2 to 2"),
    Parameter("presence_penalty", "honoured", "-2 to 2"),
    Parameter("repetition_penalty", "honoured", "extension; above 0, up to 2"),
    Parameter("seed", "honoured", "64-bit signed integer"),
    Parameter("logit_bias", "honoured", "up to 300 token ids of the vocabulary, each -100 to 100"),
    Parameter("ignore_eos", "honoured", "extension; generate on after the end-of-text token"),
    Parameter("stop_token_ids", "honoured", "extension; up to 128 ids"),
    Parameter("user", "no effect", "an identifier for abuse monitoring"),
    Parameter("metadata", "no effect", "up to 16 pairs, keys up to 64 and values up to 512 characters"),
    Parameter("store", "no effect", "only `false`; `true` is refused: nothing is stored here"),
    Parameter("service_tier", "no effect", "only `auto` and `default`; there are no other tiers"),
)

CHAT: tuple[Parameter, ...] = (
    Parameter("messages", "honoured", "1 to 2048; an assistant message at the end is continued"),
    *_SHARED,
    Parameter("max_tokens", "honoured", "1 or more"),
    Parameter("max_completion_tokens", "honoured", "1 or more; must equal `max_tokens` when both are given"),
    Parameter("logprobs", "honoured", ""),
    Parameter("top_logprobs", "honoured", "0 to 20; needs `logprobs: true`"),
    Parameter("response_format", "honoured", "`text`, `json_object`, `json_schema` (always enforced, also without `strict`)"),
    Parameter("tools", "honoured", "up to 128 functions; an empty list means none"),
    Parameter("tool_choice", "honoured", "`none`, `auto`, `required`, or one named function"),
    Parameter("parallel_tool_calls", "honoured", ""),
    Parameter("chat_template_kwargs", "honoured", "extension; variables for the model's chat template"),
    Parameter("reasoning_effort", "honoured", "only `none`, which sets `enable_thinking` to false in the chat template"),
    Parameter("verbosity", "no effect", "only `medium`, which is the default"),
    Parameter("modalities", "no effect", 'only `["text"]`'),
    Parameter("safety_identifier", "no effect", "an identifier for abuse monitoring"),
    Parameter("prompt_cache_key", "no effect", "a routing hint; prefixes are cached without it"),
    Parameter("prompt_cache_retention", "no effect", "only `in_memory`; the cache does not outlive the process"),
    Parameter("audio", "refused", "the models served here answer in text"),
    Parameter("function_call", "refused", "it is deprecated; use `tool_choice`"),
    Parameter("functions", "refused", "it is deprecated; use `tools`"),
    Parameter("moderation", "refused", "no moderation model is served"),
    Parameter("prediction", "refused", "predicted outputs are not implemented"),
    Parameter("prompt_cache_options", "refused", "the prefix cache cannot be steered per request"),
    Parameter("web_search_options", "refused", "there is no web search here"),
)

COMPLETIONS: tuple[Parameter, ...] = (
    Parameter("prompt", "honoured", "a text, up to 128 texts, token ids, or up to 128 lists of token ids"),
    *_SHARED,
    Parameter("max_tokens", "honoured", "default 16; 0 is allowed with `echo`"),
    Parameter("echo", "honoured", "puts the prompt before the answer"),
    Parameter("logprobs", "honoured", "0 to 5"),
    Parameter("best_of", "no effect", "only when it equals `n`, where it changes nothing"),
    Parameter("suffix", "refused", "no model served here is asked to fill in the middle"),
)

EMBEDDINGS: tuple[Parameter, ...] = (
    Parameter("input", "honoured", "a text, up to 2048 texts, token ids, or up to 2048 lists of token ids; none may be empty"),
    Parameter("model", "honoured", "may be left out when exactly one embedding model is served"),
    Parameter("encoding_format", "honoured", "`float` (default) or `base64` (little-endian float32)"),
    Parameter("dimensions", "honoured", "cuts vectors short and normalises them again; a model may refuse"),
    Parameter("user", "no effect", "an identifier for abuse monitoring"),
)


def reason(table: tuple[Parameter, ...], name: str) -> str:
    """Why a parameter is refused; empty when the table does not say."""
    return next((row.note for row in table if row.name == name and row.treatment == "refused"), "")


def render(table: tuple[Parameter, ...]) -> str:
    """The table as Markdown, for docs/api.md."""
    rows = [f"| `{row.name}` | {row.treatment} | {row.note} |" for row in table]
    return "\n".join(["| parameter | treatment | note |", "|---|---|---|", *rows])
