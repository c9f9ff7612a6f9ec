"""A whole engine that writes the alphabet, run by the real worker: what an engine has to bring, and nothing else.

Tokens are bytes. The next one is the letter after the last, several of them a step if so configured.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Literal

from backends.child.config import ChildConfig
from backends.child.ending import ending
from backends.child.errors import LoadError
from backends.child.prepare import Preparer, scores_prompt
from backends.child.sequence import Sequence
from backends.child.work import Broken, Emit, Event, PromptScored, Sampled, Scored
from backends.child.worker import run
from backends.errors import Failed
from backends.text.constraint import Constraint
from backends.types import GenerateRequest, ModelCard

LETTERS = b"abcdefghijklmnopqrstuvwxyz"
EOS = 256
LIMIT = 1 << 20
ENDLESS = 1 << 60  # an answer that nobody lets go is never over


class LettersConfig(ChildConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tokens_per_step: int = 1
    fault: Literal["", "load", "memory", "bug", "end"] = ""  # end: after z comes nothing


class Bytes:
    """A vocabulary of the 256 bytes and an end."""

    size, bos, eos, adds_bos, end_tokens = 257, -1, EOS, False, frozenset({EOS})

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        return b"" if token == EOS else bytes([token])

    def special_piece(self, token: int) -> bytes:
        return b"<|end|>" if token == EOS else bytes([token])

    def is_control(self, token: int) -> bool:
        return token == EOS

    def control_texts(self) -> list[str]:
        return ["<|end|>"]

    def detokenize(self, tokens: Iterable[int]) -> str:
        return b"".join(map(self.special_piece, tokens)).decode("utf-8", "replace")


@dataclass
class Work:
    max_new: int
    limit: int
    end_tokens: frozenset[int]
    constraint: Constraint | None


class Letters:
    def __init__(self, name: str, config: LettersConfig, emit: Emit) -> None:
        match config.fault:
            case "load":
                raise LoadError("The file has 25 letters, 26 are needed.")
            case "memory":
                raise MemoryError
            case "bug":
                raise RuntimeError("a bug")
        self.card = ModelCard(id=name, created=1, context_length=LIMIT, vocab_size=257, architecture="letters")
        self.slots, self.context, self.limit, self.load_s = config.slots, LIMIT, LIMIT, 0.0
        self.vocabulary, self.embedding = Bytes(), None
        self.preparer = Preparer(self.vocabulary, None, LIMIT, self._make_sequence)
        self._emit, self._per_step, self._ends = emit, config.tokens_per_step, config.fault == "end"
        self._running: list[Sequence] = []
        self._wake = threading.Condition()
        self._step_started = 0.0
        self._finished = 0
        self._closing = False

    def start(self) -> None:
        threading.Thread(target=self._compute, daemon=True).start()

    def submit(self, sequences: Iterable[Sequence]) -> None:
        with self._wake:
            self._running += sequences
            self._wake.notify()

    def finish(self, sequences: Iterable[Sequence]) -> None:
        with self._wake:
            for sequence in sequences:
                self._finished += not sequence.finished
                sequence.finished = True
            self._running = [sequence for sequence in self._running if not sequence.finished]

    def load(self) -> tuple[int, int]:
        return len(self._running), 0

    def step_age_s(self) -> float:
        return monotonic() - self._step_started if self._step_started else 0.0

    def figures(self) -> tuple[dict[str, float], dict[str, float]]:
        return {"letters": 26.0}, {"finished_total": float(self._finished)}

    def close(self) -> None:
        with self._wake:
            self._closing = True
            self._wake.notify()

    def _make_sequence(
        self, identifier: int, index: int, request: GenerateRequest, ids: list[int], constraint: Constraint | None
    ) -> Sequence:
        max_new = ENDLESS if request.max_tokens is None else request.max_tokens
        return Sequence(
            request=identifier,
            index=index,
            tenant=request.tenant,
            tokens=ids,
            num_prompt=len(ids),
            all_logits=scores_prompt(request, ids),
            work=Work(max_new, ENDLESS, frozenset(request.stop_token_ids) | {EOS}, constraint),
        )

    def _compute(self) -> None:
        while not self._closing:
            with self._wake:
                self._wake.wait_for(lambda: self._running or self._closing)
                running = list(self._running)
            self._step_started = monotonic()
            events = [event for sequence in running for event in self._step(sequence)]
            self._step_started = 0.0
            self._emit(events)

    def _step(self, sequence: Sequence) -> Iterable[Event]:
        if sequence.all_logits and not sequence.num_generated:
            yield PromptScored(sequence, 1, [Scored(-1.0, ())] * (sequence.num_prompt - 1))
        for _ in range(self._per_step):
            last = sequence.tokens[-1]
            if self._ends and last == LETTERS[-1]:
                self.finish([sequence])
                yield Broken(sequence.request, Failed("There is no letter after z."))
                return
            token = LETTERS[(LETTERS.index(last) + 1) % 26] if last in LETTERS else LETTERS[0]
            sequence.tokens.append(token)
            reason = ending(sequence, sequence.work)
            yield Sampled(sequence, token, finish=reason)
            if reason:
                self.finish([sequence])
                return


if __name__ == "__main__":
    run(LettersConfig, Letters)
