"""Which backend serves which public model name.

Knows names and the `Backend` protocol, no concrete backend and no HTTP.
"""

from collections.abc import Mapping

from backends.errors import ModelNotFound
from backends.protocol import Backend
from backends.types import Capability, ModelCard

MAX_NAMES_IN_MESSAGE = 10
MAX_NAME_CHARS = 200


class Registry:
    """A fixed map from public model name to backend; a backend may serve several names."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = dict(backends)

    def resolve(self, model: str) -> Backend:
        """Find the backend of a model.

        Raises:
            ModelNotFound: nobody serves it; the message lists up to ten models that are served.
        """
        backend = self._backends.get(model)
        if backend is None:
            raise ModelNotFound(f"The model '{model[:MAX_NAME_CHARS]}' does not exist here. {self._served()}", param="model")
        return backend

    def names(self) -> tuple[str, ...]:
        """All public names, in the order of the configuration."""
        return tuple(self._backends)

    async def cards(self) -> tuple[ModelCard, ...]:
        """The card of each public name, in order; a name that its backend does not list is left out."""
        cards: dict[str, ModelCard] = {}
        for backend in self.backends():
            cards |= {card.id: card for card in await backend.models()}
        return tuple(cards[name] for name in self._backends if name in cards)

    async def only(self, capability: Capability) -> str | None:
        """The one model with that capability, or None when there is none or a choice."""
        names = [card.id for card in await self.cards() if capability in card.capabilities]
        return names[0] if len(names) == 1 else None

    def backends(self) -> tuple[Backend, ...]:
        """Each distinct backend once."""
        return tuple({id(backend): backend for backend in self._backends.values()}.values())

    def _served(self) -> str:
        shown = list(self._backends)[:MAX_NAMES_IN_MESSAGE]
        more = len(self._backends) - len(shown)
        if not shown:
            return "No model is served."
        return f"Served: {', '.join(shown)}" + (f" and {more} more." if more else ".")
