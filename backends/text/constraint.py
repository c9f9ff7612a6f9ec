"""Structured output: which token may come next, for JSON answers and tool calls.

llguidance turns a grammar into token masks for any vocabulary. Compiling happens once per request and off the decoding path
(`Compiler.compile` may run in a thread); decoding then asks a `Constraint` for a bit mask per token. Everything fails closed: a
schema that cannot be enforced in full is refused before the answer begins, and a grammar that outgrows its limits while it runs
raises.
Source: llguidance 1.9 `docs/`; bounds in `schema_bounds`, grammars in `tool_grammar`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from backends.errors import Failed, Rejected
from backends.text.schema_bounds import schema_text
from backends.text.tool_grammar import answer_grammar, tools_grammar
from backends.text.tool_parser import ToolFormat
from backends.types import Chat, GenerateRequest, JsonObjectFormat, Tool

Mask = npt.NDArray[np.uint32]

_FORMAT_PARAM = "response_format.json_schema.schema"
_MAX_TOOLS = 128


class _Vocabulary:
    """The vocabulary in the form that llguidance asks for."""

    is_tokenizer_wrapper = True

    def __init__(
        self, pieces: Sequence[bytes], special_ids: Collection[int], eos_id: int, tokenize: Callable[[bytes], list[int]]
    ) -> None:
        self.tokens = list(pieces)
        self.special_token_ids = sorted(special_ids)
        self.eos_token_id = eos_id
        self.bos_token_id = None
        self._tokenize = tokenize

    def __call__(self, text: bytes | str) -> list[int]:
        return self._tokenize(text.encode() if isinstance(text, str) else text)


class Constraint:
    """Where one choice stands in its grammar. Used by one thread at a time."""

    __slots__ = ("_address", "_bits", "_matcher", "_param")

    def __init__(self, matcher: LLMatcher, vocab_size: int, param: str | None) -> None:
        self._matcher = matcher
        self._bits: Mask = np.zeros((vocab_size + 31) // 32, np.uint32)
        self._address = self._bits.ctypes.data
        self._param = param

    def copy(self) -> "Constraint":
        """The same position with a future of its own, for another choice of the same request.

        Copies share the lexer and its limits.
        """
        return Constraint(self._matcher.deep_copy(), self._bits.size * 32, self._param)

    def mask(self) -> Mask:
        """Compute what may come next: bit `i % 32` of word `i // 32` says whether token `i` may. Valid until the next call.

        EOS tokens are allowed exactly where the answer may end.

        Raises:
            Rejected: the grammar is too complex to follow any further.
        """
        self._matcher.unsafe_compute_mask_ptr(self._address, self._bits.nbytes)
        if self._matcher.is_error():
            raise Rejected(f"the constraint became too complex: {_reason(self._matcher)}", param=self._param)
        return self._bits

    def accept(self, token_id: int) -> None:
        """Move on by a token that the mask allowed. Raises `Failed` for any other, which is a fault of the engine."""
        if not self._matcher.consume_token(token_id):
            raise Failed(f"token {token_id} does not fit the constraint: {_reason(self._matcher)}")

    def forced(self) -> list[int]:
        """The tokens that must follow now, whatever the model thinks; empty when there is a choice."""
        return list(self._matcher.compute_ff_tokens())

    @property
    def is_accepting(self) -> bool:
        """Whether the answer is complete if it ends here."""
        return bool(self._matcher.is_accepting())

    @property
    def is_stopped(self) -> bool:
        """Whether the answer is complete and nothing may follow: the engine need not sample EOS."""
        return bool(self._matcher.is_stopped())


class Compiler:
    """Makes constraints for one vocabulary. Build it once per model (0.2 s for 49,152 tokens); safe for several threads.

    Args:
        pieces: the bytes of every token, control tokens spelled out (`b"<|im_end|>"`), so that markers among them are found.
        special_ids: the control tokens; text never matches them.
        eos_ids: the tokens that end an answer, at least one.
        tokenize: text to token ids without BOS and without parsing special tokens.
        vocab_size: length of a row of logits where it exceeds the number of pieces; the surplus is never allowed.
    """

    def __init__(
        self,
        pieces: Sequence[bytes],
        special_ids: Collection[int],
        eos_ids: Sequence[int],
        tokenize: Callable[[bytes], list[int]],
        vocab_size: int | None = None,
    ) -> None:
        self._size = max(vocab_size or 0, len(pieces))
        padding = [b""] * (self._size - len(pieces))
        vocabulary = _Vocabulary([*pieces, *padding], special_ids, eos_ids[0], tokenize)
        self._tokenizer = LLTokenizer(vocabulary, n_vocab=self._size, eos_token=list(eos_ids))  # type: ignore[arg-type]
        self._special = {pieces[i]: i for i in special_ids}

    def compile(self, request: GenerateRequest, tool_format: ToolFormat = "hermes") -> Constraint | None:
        """Return the constraint that a request asks for, or None when any text will do.

        Raises:
            Rejected: a schema is out of bounds or cannot be enforced; `param` says which.
        """
        answer = _answer_schema(request)
        chat = request.prompt
        if isinstance(chat, Chat) and chat.tools and chat.tool_choice.mode != "none":
            return self._tools(chat, tool_format, answer)
        if answer is None:
            return None
        return self._build(answer_grammar(answer), _FORMAT_PARAM)

    def _tools(self, chat: Chat, tool_format: ToolFormat, answer: str | None) -> Constraint:
        tools = [(tool.function.name, _parameters(tool, i), i) for i, tool in _offered(chat)]
        grammar = tools_grammar(
            [(name, schema) for name, schema, _ in tools],
            tool_format,
            required=chat.tool_choice.mode == "required",
            parallel=chat.parallel_tool_calls,
            answer=answer,
            special=lambda text: self._special.get(text.encode()),
        )
        try:
            return self._build(grammar, "tools")
        except Rejected:
            # Each alone, so that the error names the one that caused it.
            for _, schema, i in tools:
                self._build(answer_grammar(schema), _tool_param(i))
            if answer is not None:
                self._build(answer_grammar(answer), _FORMAT_PARAM)
            raise

    def _build(self, grammar: str, param: str) -> Constraint:
        # Not cached: copies of a matcher share one lexer with its limits, so one request could use up another's.
        matcher = LLMatcher(self._tokenizer, "%llguidance {}\n" + grammar, log_level=0, limits=_limits())
        if matcher.is_error():
            raise Rejected(f"the schema cannot be enforced: {_reason(matcher)}", param=param)
        _refuse_the_impossible(Constraint(matcher.deep_copy(), self._size, param), param)
        return Constraint(matcher, self._size, param)


def apply_mask(logits: npt.NDArray[np.float32], mask: Mask) -> None:
    """Set the logits of all tokens that the mask forbids to minus infinity, in place.

    Args:
        logits: [vocab] float32, writable; `vocab` is at most 32 times the words of `mask`.
    """
    allowed = np.unpackbits(mask.view(np.uint8), count=logits.size, bitorder="little")
    np.putmask(logits, allowed == 0, np.float32(-np.inf))


def _limits() -> LLParserLimits:
    """llguidance's own limits: about 7 ms for one mask, tens of megabytes for one lexer."""
    return LLParserLimits(max_lexer_states=20_000, max_grammar_size=100_000, step_lexer_fuel=100_000, verbose_errors=False)


def _refuse_the_impossible(constraint: Constraint, param: str) -> None:
    if not constraint.mask().any() and not constraint.is_accepting:
        raise Rejected("the schema accepts nothing", param=param)


def _answer_schema(request: GenerateRequest) -> str | None:
    if request.response_format is None:
        return None
    if isinstance(request.response_format, JsonObjectFormat):
        return '{"type":"object"}'
    return schema_text(request.response_format.schema, _FORMAT_PARAM)


def _offered(chat: Chat) -> list[tuple[int, Tool]]:
    """The tools that may be called, with their place in the request."""
    if len(chat.tools) > _MAX_TOOLS:
        raise Rejected(f"{len(chat.tools)} tools are offered, at most {_MAX_TOOLS} are allowed", param="tools")
    name = chat.tool_choice.name
    offered = [(i, tool) for i, tool in enumerate(chat.tools) if name is None or tool.function.name == name]
    if not offered:
        raise Rejected(f"the tool {str(name)[:64]!r} is not among the tools", param="tool_choice")
    return offered


def _tool_param(i: int) -> str:
    return f"tools[{i}].function.parameters"


def _parameters(tool: Tool, i: int) -> str:
    schema: dict[str, Any] = tool.function.parameters or {"type": "object", "properties": {}, "additionalProperties": False}
    if schema.get("type", "object") != "object":
        raise Rejected("the parameters of a function must be an object", param=_tool_param(i))
    return schema_text({"type": "object", **schema}, _tool_param(i))


def _reason(matcher: LLMatcher) -> str:
    text = " ".join(matcher.get_error().replace("<non-verbose/>", "").split())
    return text if len(text) <= 300 else text[:300] + "..."
