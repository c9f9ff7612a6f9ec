"""From a request to sequences: render, tokenise, check, compile. Runs in a thread of its own, off the decoding path.

Everything that can be wrong with a request is found here, before it takes a slot. What a sequence is made of is the engine's.
"""

import threading
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from backends.child.sequence import Sequence
from backends.errors import ContextOverflow, Rejected, Unsupported
from backends.text.answer import Answer
from backends.text.chat_template import ChatTemplate
from backends.text.constraint import Compiler, Constraint
from backends.text.vocabulary import Vocabulary
from backends.types import Chat, GenerateRequest, Prompt, Text, TokenizeRequest, Tokens

S = TypeVar("S", bound=Sequence)
S_co = TypeVar("S_co", bound=Sequence, covariant=True)

_MAX_CHOICES = 128


class MakeSequence(Protocol[S_co]):
    """How an engine represents one choice of a request."""

    def __call__(
        self, identifier: int, index: int, request: GenerateRequest, ids: list[int], constraint: Constraint | None
    ) -> S_co:
        """Make the sequence of choice `index`.

        Args:
            ids: the prompt, in a list that is the sequence's own.
            constraint: what its tokens must fit, its own too; None where any will do.
        """
        ...


def scores_prompt(request: GenerateRequest, ids: list[int]) -> bool:
    """Say whether tokens of the prompt need scores, which is `Sequence.all_logits`. Nothing precedes, and scores, the first."""
    return request.echo and request.logprobs is not None and len(ids) > 1


@dataclass(slots=True, frozen=True)
class Prepared(Generic[S]):
    """A request ready to run: one sequence and one answer per choice, in the order of their indices."""

    sequences: list[S]
    answers: list[Answer]


class Preparer(Generic[S]):
    """Knows the model's vocabulary, template and limits.

    Args:
        chat_template: the model's own Jinja template, or None.
        limit: the most tokens one request may use, prompt and answer.
        make_sequence: None for a model that only makes embeddings.
    """

    def __init__(
        self, vocabulary: Vocabulary, chat_template: str | None, limit: int, make_sequence: MakeSequence[S] | None
    ) -> None:
        self._vocabulary, self._limit, self._make_sequence = vocabulary, limit, make_sequence
        words = vocabulary
        self._template = ChatTemplate(
            chat_template,
            bos_token=words.special_piece(words.bos).decode("utf-8", "replace") if words.bos >= 0 else "",
            eos_token=words.special_piece(words.eos).decode("utf-8", "replace") if words.eos >= 0 else "",
            control_tokens=words.control_texts(),
        )
        self._compiler: Compiler | None = None
        self._compiler_lock = threading.Lock()

    def prepare(self, identifier: int, request: GenerateRequest) -> Prepared[S]:
        """Check a request and make its sequences. Raises Rejected and its kinds."""
        if self._make_sequence is None:
            raise Unsupported(f"the model {request.model} makes embeddings only", param="model")
        ids = self.tokens_of(request.prompt)
        self._check(request, ids)
        constraint = self._constraint(request)
        chat = request.prompt if isinstance(request.prompt, Chat) else None
        tools = chat.tools if chat and chat.tool_choice.mode != "none" else ()
        sequences, answers = [], []
        for index in range(request.n):
            own = constraint if index == 0 or constraint is None else constraint.copy()
            sequences.append(self._make_sequence(identifier, index, request, list(ids), own))
            answers.append(
                Answer(
                    index,
                    request.stop,
                    self._template.tool_format if tools else None,
                    tuple(tool.function.name for tool in tools),
                )
            )
        return Prepared(sequences, answers)

    def tokens_of(self, prompt: Prompt, param: str = "prompt") -> list[int]:
        """Turn any prompt into token ids. `param` names a raw prompt's field in errors. Raises Rejected."""
        if isinstance(prompt, Tokens):
            self.check_ids(prompt.ids, param)
            return list(prompt.ids)
        if isinstance(prompt, Text):
            self._check_length(len(prompt.text), param)
            return self._vocabulary.tokenize(prompt.text, add_special=True, parse_special=True)
        self._check_length(sum(len(message.text) for message in prompt.messages), "messages")
        ids: list[int] = []
        for segment in self._template.render(prompt):
            ids += self._vocabulary.tokenize(segment, add_special=False, parse_special=True)
        if self._vocabulary.adds_bos and ids[:1] != [self._vocabulary.bos]:
            ids.insert(0, self._vocabulary.bos)
        return ids

    def tokenize(self, request: TokenizeRequest) -> tuple[int, ...]:
        """Answer a tokenize request. Raises Rejected."""
        if isinstance(request.prompt, Chat):
            return tuple(self.tokens_of(request.prompt))
        return tuple(
            self._vocabulary.tokenize(request.prompt.text, add_special=request.add_special, parse_special=request.parse_special)
        )

    def check_ids(self, ids: tuple[int, ...], param: str) -> None:
        """Raise Rejected for a token id outside the vocabulary: an engine would read beyond its tables."""
        wrong = next((i for i in ids if not 0 <= i < self._vocabulary.size), None)
        if wrong is not None:
            raise Rejected(f"token id {wrong} is outside the vocabulary (0 to {self._vocabulary.size - 1})", param=param)

    def _check_length(self, characters: int, param: str) -> None:
        # A token covers at most a few dozen characters in any vocabulary: far beyond the context there is no need to tokenise.
        if characters > 256 * self._limit:
            raise ContextOverflow(
                f"the prompt has {characters} characters, far more than the model's context of {self._limit} tokens can hold",
                param=param,
            )

    def _check(self, request: GenerateRequest, ids: list[int]) -> None:
        param = "messages" if isinstance(request.prompt, Chat) else "prompt"
        if not ids:
            raise Rejected("the prompt is empty", param=param)
        wants_tokens = request.max_tokens != 0
        if len(ids) + wants_tokens > self._limit:
            raise ContextOverflow(
                f"this model's maximum context length is {self._limit} tokens, and the prompt has {len(ids)} tokens",
                param=param,
            )
        if request.n > _MAX_CHOICES:
            raise Rejected(f"n is {request.n}, at most {_MAX_CHOICES} choices are possible", param="n")
        self.check_ids(tuple(request.sampling.logit_bias), "logit_bias")
        self.check_ids(request.stop_token_ids, "stop_token_ids")

    def _constraint(self, request: GenerateRequest) -> Constraint | None:
        chat = request.prompt
        if request.response_format is not None and isinstance(chat, Chat) and chat.continue_final:
            raise Unsupported("an answer whose beginning is given cannot be held to a format", param="response_format")
        wants_tools = isinstance(chat, Chat) and bool(chat.tools) and chat.tool_choice.mode != "none"
        if request.response_format is None and not wants_tools:
            return None
        return self._compiler_of_model().compile(request, self._template.tool_format)

    def _compiler_of_model(self) -> Compiler:
        with self._compiler_lock:
            if self._compiler is None:
                words = self._vocabulary
                self._compiler = Compiler(
                    [words.special_piece(i) for i in range(words.size)],
                    [i for i in range(words.size) if words.is_control(i)],
                    sorted(words.end_tokens),
                    lambda data: words.tokenize(data.decode("utf-8", "replace"), add_special=False, parse_special=False),
                    words.size,
                )
            return self._compiler
