"""What the process around an engine needs of it: the seam between `backends.child` and each engine."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from backends.child.embedding import Embedding
from backends.child.prepare import Preparer
from backends.child.sequence import Sequence
from backends.text.vocabulary import Vocabulary
from backends.types import ModelCard

S = TypeVar("S", bound=Sequence)


class Service(Protocol[S]):
    """A loaded model, and a thread that computes. What its steps bring goes to the `Emit` that it was made with.

    All methods may be called from any thread, and none waits for a step.
    """

    @property
    def card(self) -> ModelCard:
        """The model as served."""
        ...

    @property
    def slots(self) -> int:
        """How many choices are generated at once."""
        ...

    @property
    def context(self) -> int:
        """How many tokens the KV cache holds, for all requests together."""
        ...

    @property
    def limit(self) -> int:
        """The most tokens, prompt and answer, that one request may use."""
        ...

    @property
    def load_s(self) -> float:
        """How long loading took."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens."""
        ...

    @property
    def preparer(self) -> Preparer[S]:
        """Makes sequences of requests."""
        ...

    @property
    def embedding(self) -> Embedding | None:
        """Computes vectors; None where the engine cannot."""
        ...

    def start(self) -> None:
        """Begin to compute. Called once, before anything is submitted."""
        ...

    def submit(self, sequences: Iterable[S]) -> None:
        """Queue the choices of one request."""
        ...

    def finish(self, sequences: Iterable[S]) -> None:
        """Let sequences go before the next step, in whatever state they are: cancelled, or ended by a stop string.

        Those that were let go already are no error.
        """
        ...

    def load(self) -> tuple[int, int]:
        """How many sequences run, and how many wait."""
        ...

    def step_age_s(self) -> float:
        """How long the step that runs now has been running; 0 when none does."""
        ...

    def figures(self) -> tuple[dict[str, float], dict[str, float]]:
        """Gauges and counters for `/metrics`, named as in `backends.types.Health`."""
        ...

    def close(self) -> None:
        """Begin no further step. The process ends right after, whatever still computes."""
        ...
