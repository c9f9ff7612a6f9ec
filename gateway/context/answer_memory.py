"""Kept answers in the memory of this process: bounded in bytes, the least recently used go first."""

from gateway.context.cached_answer import CachedAnswer

ENTRY_BYTES = 256
"""What an entry takes beside its body: key, objects and its place in the table (207 were measured)."""


class AnswerMemory:
    """Answers by key.

    Args:
        capacity: bytes.
        ttl_s: seconds after which an answer is no longer found.
    """

    def __init__(self, capacity: int, ttl_s: float) -> None:
        self.size = 0
        self._capacity = capacity
        self._ttl_s = ttl_s
        self._answers: dict[bytes, CachedAnswer] = {}  # insertion order is the order of use

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: bytes, now: float) -> CachedAnswer | None:
        """Find an answer that is young enough, and count that as use."""
        answer = self._answers.get(key)
        if answer is None:
            return None
        if now >= answer.stored_at + self._ttl_s:
            self._remove(key)
            return None
        self._answers[key] = self._answers.pop(key)
        return answer

    def put(self, key: bytes, answer: CachedAnswer) -> bool:
        """Keep an answer, in place of an older one; False when it is larger than the capacity."""
        if key in self._answers:
            self._remove(key)
        cost = len(answer.body) + ENTRY_BYTES
        if cost > self._capacity:
            return False
        self._answers[key] = answer
        self.size += cost
        while self.size > self._capacity:
            self._remove(next(iter(self._answers)))
        return True

    def clear(self) -> None:
        """Forget everything."""
        self._answers.clear()
        self.size = 0

    def _remove(self, key: bytes) -> None:
        self.size -= len(self._answers.pop(key).body) + ENTRY_BYTES
