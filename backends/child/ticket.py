"""What is remembered of a request until its last delta is sent, and how events become deltas. Knows no thread and no socket."""

from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import structs

from backends.child.prepare import Prepared
from backends.child.sequence import Sequence
from backends.child.work import PromptScored, Sampled, Scored
from backends.types import Delta, FinishReason, GenerateRequest, TokenLogprob, Usage

S = TypeVar("S", bound=Sequence)


class Ticket(Generic[S]):
    """One running request.

    Args:
        piece: the visible bytes of a token.
        spell: the bytes of a token with control tokens spelled out, for echoed prompts.
    """

    def __init__(
        self, request: GenerateRequest, prepared: Prepared[S], piece: Callable[[int], bytes], spell: Callable[[int], bytes]
    ) -> None:
        self.sequences = prepared.sequences
        self._request, self._answers, self._piece, self._spell = request, prepared.answers, piece, spell
        self._open = set(range(request.n))
        self._generated = 0
        self._prompt_scores: list[list[Scored | None] | None] = [[None] for _ in range(request.n)]  # None: echoed already

    @property
    def is_done(self) -> bool:
        """Whether every choice has ended."""
        return not self._open

    def echo(self) -> list[Delta]:
        """The prompt as text, for each choice whose prompt needs no scores."""
        if not self._request.echo or self.sequences[0].all_logits:
            return []
        return [self._echoed(index, [None]) for index in range(self._request.n)]

    def end_without_tokens(self) -> list[Delta]:
        """End a request that asked for no new token."""
        return [self._end_empty(sequence.index) for sequence in self.sequences]

    def prompt_scored(self, event: PromptScored) -> tuple[list[Delta], S | None]:
        """Collect scores of prompt tokens; the echo comes with the last of them.

        Also names the sequence to let go, when no token was asked for and the choice ends with its echo.
        """
        sequence = self.sequences[event.sequence.index]
        scores = self._prompt_scores[sequence.index]
        if scores is None:
            return [], None
        scores += event.scores[len(scores) - event.start :]  # a preempted prompt is scored again: take each token once
        if len(scores) < sequence.num_prompt:
            return [], None
        self._prompt_scores[sequence.index] = None
        echoed = self._echoed(sequence.index, scores)
        if self._request.max_tokens == 0:
            return [echoed, self._end_empty(sequence.index)], sequence
        return [echoed], None

    def sampled(self, event: Sampled) -> tuple[list[Delta], S | None]:
        """Turn a token into deltas; also name the sequence to let go, when a stop string ended it here and not there."""
        index = event.sequence.index
        if index not in self._open:
            return [], None  # computed before the engine heard of the end
        self._generated += 1
        deltas, answer = [], self._answers[index]
        if event.finish != "stop":
            piece, scored = self._piece(event.token), event.scored
            delta = answer.push(event.token, piece, scored.logprob, scored.top) if scored else answer.push(event.token, piece)
            if delta is not None:
                deltas.append(delta)
            if answer.stopped:
                return [*deltas, self._end(index, "stop")], None if event.finish else self.sequences[index]
        if event.finish:
            deltas.append(self._end(index, "length" if event.finish == "length" else "stop"))
        return deltas, None

    def _end(self, index: int, reason: FinishReason) -> Delta:
        self._open.discard(index)
        delta = self._answers[index].finish(reason)
        if self._open:
            return delta
        return structs.replace(delta, usage=self._usage())

    def _end_empty(self, index: int) -> Delta:
        self._open.discard(index)
        return Delta(index=index, finish="length", usage=None if self._open else self._usage())

    def _usage(self) -> Usage:
        # The choices of a request share the prompt that the first of them computed: that is no cache hit.
        cached = min(sequence.cached for sequence in self.sequences)
        return Usage(self.sequences[0].num_prompt, self._generated, cached)

    def _echoed(self, index: int, scores: list[Scored | None]) -> Delta:
        sequence = self.sequences[index]
        prompt = sequence.tokens[: sequence.num_prompt]
        pieces = [self._spell(token) for token in prompt]
        text = b"".join(pieces).decode("utf-8", "replace")
        if self._request.logprobs is None:
            return Delta(index=index, text=text)
        logprobs = tuple(
            TokenLogprob(token, piece, scored.logprob if scored else None, scored.top if scored else ())
            for token, piece, scored in zip(prompt, pieces, scores, strict=True)
        )
        return Delta(index=index, text=text, logprobs=logprobs)
