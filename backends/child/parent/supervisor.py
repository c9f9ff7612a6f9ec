"""Keeps one model served: checks the file, starts a child, starts another when it ends, gives up when that does not help.

Knows lives and the policy between them; what a life is made of is `life`'s, and what requests say is `hosted`'s. It runs as one
task, which owns everything, so that cancelling the task releases everything too.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from backends.child.config import ChildConfig
from backends.child.errors import LoadError
from backends.child.messages import Ready
from backends.child.parent.life import Ending, Life, first_of
from backends.child.parent.restart_policy import RestartPolicy
from backends.errors import Unavailable
from backends.types import ModelCard, ModelState

logger = logging.getLogger("baton.engine")

_USUAL_LOAD_S = 2.0


class Supervisor:
    """Of the model `name`.

    Args:
        command: what starts a child.
        describe: checks the file and makes a card of it, in a thread; raises LoadError.

    Attributes:
        detail: what went wrong last, as long as it matters.
        card: the best description so far: of the loaded model, else of the file's header, else of nothing but the name.
        life: the present child, loading or ready.
    """

    def __init__(self, name: str, config: ChildConfig, command: Sequence[str], describe: Callable[[], ModelCard]) -> None:
        self._name = name
        self._config = config
        self._command = command
        self._describe = describe
        self._policy = RestartPolicy(config.max_crashes, config.crash_window_s)
        self._task: asyncio.Task[None] | None = None
        self._stop: asyncio.Future[None] | None = None
        self._retry = asyncio.Event()
        self._load_s = _USUAL_LOAD_S
        self._resume_at = 0.0
        self._state: ModelState = "stopped"
        self.detail = "It was not started."
        self.card = ModelCard(id=name, created=int(time.time()))
        self.life: Life | None = None
        self._counters: dict[str, float] = {"starts_total": 0, "crashes_total": 0}

    @property
    def state(self) -> ModelState:
        """`loading` also from the end of a child to the moment the next one is ready."""
        if self._stop is None or self._stop.done():
            return "stopped"
        if self._state == "ready" and (self.life is None or self.life.ready is None):
            return "loading"
        return self._state

    @property
    def counters(self) -> dict[str, float]:
        """Sums over all children so far, the present one included, and our own."""
        return _sum(self._counters, self.life)

    def start(self) -> None:
        """Begin; a second call has no effect."""
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._stop = loop.create_future()
            self._set("loading")
            self._task = loop.create_task(self._supervise(self._stop), name=f"supervisor of {self._name}")

    async def close(self) -> None:
        """End the child (asked first, killed after 3 s) and the supervision. May be called twice, and side by side."""
        if self._task is None or self._stop is None:
            return
        if not self._stop.done():
            self._stop.set_result(None)
        await asyncio.wait({self._task})

    def serving(self) -> Life:
        """The child that serves now.

        Raises:
            Unavailable: it loads, restarts, has been given up or was stopped. A model that was given up for `crash_window_s`
                is tried again because of this call.
        """
        if self.life is not None and self.life.ready is not None:
            return self.life
        wait_s = max(0.0, self._resume_at - time.monotonic())
        match self.state:
            case "failed" if wait_s > 0:
                raise Unavailable(self.detail, retry_after_s=wait_s)
            case "failed":
                self._retry.set()
                raise Unavailable(f"The model '{self._name}' is tried again. {self.detail}", retry_after_s=self._load_s)
            case "stopped":
                raise Unavailable(f"The model '{self._name}' is stopped. {self.detail}".rstrip())
            case _:
                text = f"The model '{self._name}' is loading. {self.detail}".rstrip()
                raise Unavailable(text, retry_after_s=max(1.0, wait_s + self._load_s))

    async def _supervise(self, stop: asyncio.Future[None]) -> None:
        try:
            while not stop.done():
                ending = await self._live(stop)
                if not stop.done():
                    await self._rest(ending, stop)
            self._set("stopped")
        except asyncio.CancelledError:
            self._set("stopped")
            raise
        except Exception:
            # Nobody awaits this task: without this the model would seem to load for ever.
            logger.exception("the supervision of model %s broke", self._name)
            self._fail(f"The supervision of the model '{self._name}' broke; see the log.")

    async def _live(self, stop: asyncio.Future[None]) -> Ending:
        """One attempt, from the file to the end of the child."""
        refusal = await self._check_file(stop)
        if refusal is not None:
            return Ending("refused", refusal)
        try:
            self.life = Life(self._name, self._config, self._command, self._on_ready)
        except OSError as error:
            return Ending("crashed", f"The engine of the model '{self._name}' cannot be started: {error.strerror}.")
        life = self.life
        self._counters["starts_total"] += 1
        logger.info("model %s: engine process %d started", self._name, life.pid)
        try:
            ending = await life.run(stop)
        finally:
            self.life = None
            self._counters = _sum(self._counters, life)
        if ending.kind != "stopped":
            tail = life.log.tail()
            logger.error("%s Its last output: %s", ending.message, f"\n{tail}" if tail else "none.")
        return ending

    async def _check_file(self, stop: asyncio.Future[None]) -> str | None:
        """Look at the file in a thread, before any native code does. Returns what is wrong with it."""
        check = asyncio.get_running_loop().run_in_executor(None, self._card_or_refusal)
        await first_of(check, stop)
        if not check.done():
            return "The check of the file was interrupted."
        found = check.result()
        if isinstance(found, str):
            return found
        self.card = found
        return None

    def _card_or_refusal(self) -> ModelCard | str:
        try:
            return self._describe()
        except LoadError as error:
            return str(error)

    async def _rest(self, ending: Ending, stop: asyncio.Future[None]) -> None:
        """Wait as long as the policy says, or until a request asks for a model that was given up long enough ago."""
        delay = None
        if ending.kind == "crashed":
            self._counters["crashes_total"] += 1
            delay = self._policy.delay_after_crash(time.monotonic(), was_ready=ending.was_ready)
        if delay is not None:
            self._set("loading", f"It is restarted: {ending.message}")
            self._resume_at = time.monotonic() + delay
            await first_of(stop, timeout_s=delay)
            return
        window = f"{self._config.crash_window_s:g} s"
        given_up = f" It crashed {self._config.max_crashes} times and is not started again for {window} (crash_window_s)."
        self._fail(ending.message + (given_up if ending.kind == "crashed" else ""))
        logger.error("model %s is given up: %s", self._name, self.detail)
        self._retry.clear()
        retry = asyncio.ensure_future(self._retry.wait())
        try:
            await first_of(stop, retry)
        finally:
            retry.cancel()
        self._policy.forget()
        self._set("loading")

    def _on_ready(self, ready: Ready) -> None:
        # A child knows no better date than its own start, which would change with every restart.
        self.card = replace(ready.card, created=self.card.created)
        self._load_s = max(_USUAL_LOAD_S, ready.load_s)
        self._set("ready")
        logger.info("model %s is ready after %.1f s", self._name, ready.load_s)

    def _fail(self, detail: str) -> None:
        self._set("failed", detail)
        self._resume_at = time.monotonic() + self._config.crash_window_s

    def _set(self, state: ModelState, detail: str = "") -> None:
        self._state = state
        self.detail = detail


def _sum(counters: dict[str, float], life: Life | None) -> dict[str, float]:
    total = dict(counters)
    if life is not None and life.beat is not None:
        for name, value in life.beat.counters.items():
            total[name] = total.get(name, 0) + value
    return total
