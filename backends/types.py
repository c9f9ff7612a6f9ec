"""The vocabulary: what a request, a piece of an answer and a model are called everywhere in Baton.

Conversation types have the JSON shape of the OpenAI chat API, so that a backend which forwards to another server can encode
them as they are. Everything is frozen: a value that was handed on can be read from any task. This module knows no engine, no
HTTP and no tensor.
"""

from typing import Any, Literal

from msgspec import Struct, field

Role = Literal["system", "developer", "user", "assistant", "tool"]


class TextPart(Struct, frozen=True, tag_field="type", tag="text"):
    """Plain text inside a message."""

    text: str


class ImageUrl(Struct, frozen=True, omit_defaults=True):
    """Where an image is (`https:` or `data:` URL), and how closely to look at it."""

    url: str
    detail: str = "auto"


class ImagePart(Struct, frozen=True, tag_field="type", tag="image_url"):
    """An image inside a message."""

    image_url: ImageUrl


Part = TextPart | ImagePart


class FunctionCall(Struct, frozen=True):
    """A call as the model wrote it; `arguments` is JSON text and may be malformed, because models write it."""

    name: str
    arguments: str


class ToolCall(Struct, frozen=True):
    """One finished call in an assistant message."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class Message(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One turn of a conversation."""

    role: Role
    content: str | tuple[Part, ...] | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The text of all text parts, joined; empty when there is none."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or () if isinstance(part, TextPart))


class Function(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A function that the model may call; `parameters` is a JSON schema of an object."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Struct, frozen=True):
    """A tool offered to the model. Functions are the only kind so far."""

    function: Function
    type: Literal["function"] = "function"


class ToolChoice(Struct, frozen=True):
    """Whether the model may, must or must not call: `required` with a `name` means that very function."""

    mode: Literal["none", "auto", "required"] = "auto"
    name: str | None = None


class Chat(Struct, frozen=True, tag=True, kw_only=True):
    """A conversation, rendered by the model's own chat template.

    When `continue_final` is set the last message is an assistant message that the answer continues (prefill).
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    continue_final: bool = False
    template_kwargs: dict[str, Any] = {}


class Text(Struct, frozen=True, tag=True):
    """A raw prompt, tokenised as it is (with the model's BOS token where its vocabulary asks for one)."""

    text: str


class Tokens(Struct, frozen=True, tag=True):
    """A raw prompt of token ids, taken as it is; the backend refuses ids outside the vocabulary."""

    ids: tuple[int, ...]


Prompt = Chat | Text | Tokens


class Sampling(Struct, frozen=True, kw_only=True):
    """How the next token is chosen. Applied in the order of the fields below `logit_bias`.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1, `min_p` 0 and the penalties' defaults switch their filter off.
    Penalties see the tokens generated so far; `repetition_penalty` sees the prompt too (as in the CTRL paper, section 4.1).
    """

    logit_bias: dict[int, float] = {}
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None


class JsonObjectFormat(Struct, frozen=True, tag=True):
    """The answer is some JSON object."""


class JsonSchemaFormat(Struct, frozen=True, tag=True):
    """The answer is JSON that a schema accepts."""

    schema: dict[str, Any]
    name: str = "response"


ResponseFormat = JsonObjectFormat | JsonSchemaFormat


class GenerateRequest(Struct, frozen=True, kw_only=True):
    """One prompt and everything that decides its answer.

    `max_tokens` counts generated tokens per choice; None means up to the end of the context. `logprobs` is None for off, else
    the number of alternatives (0 to 20) beside each chosen token. `tenant` separates what may be shared: nothing computed for
    one tenant is ever visible to another, not even as a cached prefix.
    """

    id: str
    model: str
    prompt: Prompt
    max_tokens: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    sampling: Sampling = Sampling()
    logprobs: int | None = None
    echo: bool = False
    response_format: ResponseFormat | None = None
    tenant: str = ""


FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class Alternative(Struct, frozen=True, array_like=True, gc=False):
    """A token that could have stood there; `piece` holds its exact bytes, which may be part of a character."""

    id: int
    piece: bytes
    logprob: float


class TokenLogprob(Struct, frozen=True, array_like=True):
    """A token of the answer (or, with `echo`, of the prompt) with its natural-log probability under the model.

    The probability is that of the unmodified model distribution (before temperature, penalties and filters). `logprob` is None
    only for the first token of an echoed prompt, which nothing precedes; it is never NaN, and at least -9999.
    """

    id: int
    piece: bytes
    logprob: float | None
    top: tuple[Alternative, ...] = ()


class ToolCallDelta(Struct, frozen=True, array_like=True):
    """A piece of a tool call: the first of a call carries `id` and `name`, later ones only more of `arguments`."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class Usage(Struct, frozen=True, array_like=True, gc=False):
    """Tokens of the whole request: the prompt counted once, all choices together."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


class Delta(Struct, frozen=True, array_like=True):
    """A piece of the answer of one choice.

    `tokens` counts the generated tokens behind it (0 for echoed text). Each choice ends with exactly one delta that has
    `finish`; the last delta of the whole stream carries `usage`, and no other does. `reasoning` is what the model wrote for
    itself, before the text. `stop` stands beside a `finish` of `stop`: the stop string that ended the choice, None when the
    model ended by itself or when it is not known.
    """

    index: int = 0
    text: str = ""
    tokens: int = 0
    tool_calls: tuple[ToolCallDelta, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: FinishReason | None = None
    usage: Usage | None = None
    reasoning: str = ""
    stop: str | None = None


class EmbedRequest(Struct, frozen=True, kw_only=True):
    """Texts (or token ids) to turn into vectors, each on its own. `dimensions` cuts vectors short and normalises them again."""

    id: str
    model: str
    inputs: tuple[Text | Tokens, ...]
    dimensions: int | None = None
    tenant: str = ""


class Embeddings(Struct, frozen=True):
    """One vector per input, in order: little-endian float32, Euclidean length 1."""

    vectors: tuple[bytes, ...]
    usage: Usage


class TokenizeRequest(Struct, frozen=True, kw_only=True):
    """Text or a conversation to turn into token ids.

    `add_special` puts BOS/EOS where the vocabulary asks for them; `parse_special` reads `<|im_start|>` and the like as tokens.
    """

    model: str
    prompt: Chat | Text
    add_special: bool = True
    parse_special: bool = True


class TokenList(Struct, frozen=True):
    """The ids of a text with the bytes of each."""

    ids: tuple[int, ...]
    pieces: tuple[bytes, ...]


ModelState = Literal["loading", "ready", "degraded", "failed", "stopped"]
Capability = Literal["chat", "completion", "embedding", "rerank", "responses"]


class ModelCard(Struct, frozen=True, kw_only=True):
    """A model that a backend serves. `created` is in Unix seconds; sizes are in tokens, parameters and bytes."""

    id: str
    created: int
    owned_by: str = "baton"
    capabilities: tuple[Capability, ...] = ("chat", "completion")
    context_length: int | None = None
    vocab_size: int | None = None
    parameters: int | None = None
    size_bytes: int | None = None
    architecture: str | None = None
    quantization: str | None = None


class Health(Struct, frozen=True, kw_only=True):
    """How a backend is. `running` requests hold a slot, `waiting` ones do not yet.

    `gauges` and `counters` are backend-specific figures for `/metrics`, named like Prometheus metrics without a prefix
    (`kv_cells_used`, `prefix_cache_hit_tokens_total`); counters only ever grow during one life of the backend.
    """

    state: ModelState
    detail: str = ""
    running: int = 0
    waiting: int = 0
    slots: int = 0
    gauges: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
