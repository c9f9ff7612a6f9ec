"""Texts to vectors, as far as every engine does it alike: what is asked of one that can, and the checks before and after."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from backends.child.work import EmbedJob
from backends.errors import ContextOverflow, Rejected
from backends.types import EmbedRequest, Prompt


class Embedding(Protocol):
    """The part of an engine that computes vectors, between the steps of generation."""

    @property
    def size(self) -> int:
        """How many numbers a vector has."""
        ...

    @property
    def limit(self) -> int:
        """The most tokens that can be embedded at once."""
        ...

    def submit(self, job: EmbedJob) -> None:
        """Queue texts; the answer is a `Vectors` or a `Broken`."""
        ...

    def cancel(self, request: int) -> None:
        """Forget a job that has not finished. One that is not there is no error."""
        ...


def token_lists(request: EmbedRequest, embedding: Embedding, tokens_of: Callable[[Prompt, str], list[int]]) -> list[list[int]]:
    """Tokenise and check what shall be embedded; `tokens_of` is `Preparer.tokens_of`. Raises Rejected and its kinds."""
    if request.dimensions is not None and request.dimensions > embedding.size:
        raise Rejected(f"dimensions is {request.dimensions}, the model's vectors have {embedding.size}", param="dimensions")
    inputs = []
    for i, prompt in enumerate(request.inputs):
        param = "input" if len(request.inputs) == 1 else f"input[{i}]"
        ids = tokens_of(prompt, param)
        if not ids:
            raise Rejected(f"'{param}' has no tokens", param=param)
        if len(ids) > embedding.limit:
            text = f"'{param}' has {len(ids)} tokens, at most {embedding.limit} can be embedded at once"
            raise ContextOverflow(text, param=param)
        inputs.append(ids)
    return inputs


def shortened(vector: bytes, dimensions: int | None) -> bytes:
    """Cut a normalised vector (little-endian float32) to its first `dimensions` numbers and normalise it again."""
    if dimensions is None:
        return vector
    head = np.frombuffer(vector, "<f4")[:dimensions]
    norm = float(np.linalg.norm(head))
    return (head / np.float32(norm) if norm > 0 else head).astype("<f4").tobytes()
