"""An answer that has begun and whose end is written down."""

from gateway.dispatch.answer import Answer
from gateway.dispatch.run import Run


class Opened:
    """Whoever holds it closes it. Bytes come from here, what describes them from `source`."""

    __slots__ = ("_run", "source")

    def __init__(self, source: Answer, run: Run) -> None:
        self.source = source
        self._run = run

    async def next(self) -> bytes:
        """The next bytes of the source; only to be called while `source.ended` is false.

        Raises:
            BackendError: the backend broke.
        """
        source = self.source
        try:
            data = await source.next()
        except Exception as error:
            await self._run.failed(error)
            raise
        self._run.progress(source.outputs)
        if source.ended:
            await self._run.ended(source)
        return data

    async def aclose(self) -> None:
        """Let go; before the end that cancels the request. May be called twice."""
        try:
            await self.source.aclose()
        finally:
            await self._run.cancelled()
