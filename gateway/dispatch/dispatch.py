"""The way of a call to a backend, and the account of it when the answer has ended.

limiter.reserve > queue.admit > execute(router) > first output > ... > Run.ended | failed | cancelled
"""

from collections.abc import Awaitable, Callable, Mapping

from gateway.admission.queue import Queue
from gateway.call import Call
from gateway.dispatch.answer import Answer
from gateway.dispatch.catalog import Catalog
from gateway.dispatch.opened import Opened
from gateway.dispatch.run import Run
from gateway.limits.limiter import Limiter
from gateway.limits.prices import Price
from gateway.routing.deployment import Deployment
from gateway.routing.execute import execute
from gateway.routing.router import Router
from gateway.telemetry.telemetry import Telemetry


class Dispatch:
    """Where routes hand their calls in.

    Args:
        queues: by public model name.
        prices: by public model name.
    """

    def __init__(
        self,
        router: Router,
        catalog: Catalog,
        queues: Mapping[str, Queue],
        limiter: Limiter,
        telemetry: Telemetry,
        prices: Mapping[str, Price],
    ) -> None:
        self.router = router
        self.catalog = catalog
        self._queues = queues
        self._limiter = limiter
        self._telemetry = telemetry
        self._prices = prices

    async def open(
        self,
        call: Call,
        opener: Callable[[Deployment], Awaitable[Answer]],
        *,
        stream: bool = False,
        prompt_param: str = "messages",
    ) -> Opened:
        """Wait for the first output of whichever deployment gives it. The caller closes what is returned.

        Args:
            opener: starts the work on a deployment; it may be called several times, also at the same time.
            prompt_param: the field to blame for an overflowing context.

        Raises:
            ModelNotFound: nobody serves the model.
            RateLimited: the key has used up what it may.
            BackendError: nobody could answer; this is the last error.
        """
        self.router.resolve(call.model)
        observation = self._telemetry.begin(call.endpoint, call.model, stream)
        run = Run(call, observation, self._telemetry.usage, prompt_param)
        call.on_tokens = run.progress
        try:
            run.reservation = await self._limiter.reserve(call.identity, call)
            call.headers += run.reservation.headers()
            run.ticket = await self._queues[call.model].admit(call)
            source, run.attempt = await execute(self.router, call, opener)
            run.price = self._prices.get(call.trail.fallback or call.model)
            run.progress(source.outputs)
            if source.ended:
                await run.ended(source)
        except Exception as error:
            await run.failed(error)
            raise
        except BaseException:
            await run.cancelled()
            raise
        return Opened(source, run)
