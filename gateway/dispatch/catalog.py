"""What the public model names stand for: their cards, and the traits that decide how a request is read."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from backends.protocol import Backend, Forwarder
from backends.types import Capability, ModelCard
from gateway.identity import Identity
from gateway.keys.permission import visible_models
from gateway.routing.affinity import PrefixAffinity
from gateway.routing.router import Router


class Traits(Struct, frozen=True):
    """`has_local`: some deployment is not forwarded to: bodies must be decoded. `by_prefix`: routing looks at the prompt."""

    has_local: bool
    by_prefix: bool


class Catalog:
    """A view on the router's names. Cheap to ask, also per request.

    Args:
        router: it decides which names are public.
        backends: by configured name.
    """

    def __init__(self, router: Router, backends: Mapping[str, Backend]) -> None:
        self._router = router
        self._backends = backends
        self._traits = {name: self._traits_of(name) for name in router.names()}

    def names(self) -> tuple[str, ...]:
        """All public names, in the order of the configuration."""
        return tuple(self._traits)

    def traits(self, model: str) -> Traits:
        """How a request for this model must be read. Raises ModelNotFound."""
        found = self._traits.get(model)
        if found is None:
            self._router.resolve(model)
            raise AssertionError(f"{model} is routed but not in the catalog")
        return found

    def backend(self, model: str) -> tuple[str, Backend]:
        """The first deployment of a model with its own name, for what is no generation (tokenizing). Raises ModelNotFound."""
        deployment = self._router.resolve(model).seats[0].deployment
        return deployment.name, deployment.backend

    async def cards(self, identity: Identity) -> tuple[ModelCard, ...]:
        """The card of each public name that the key may use, in order; a name whose backend does not list it is left out."""
        known: dict[str, ModelCard] = {}
        for backend in {id(backend): backend for backend in self._backends.values()}.values():
            known |= {card.id: card for card in await backend.models()}
        cards = []
        for name in visible_models(identity, self._traits):
            card = known.get(self.backend(name)[0])
            if card is not None:
                cards.append(msgspec.structs.replace(card, id=name))
        return tuple(cards)

    async def only(self, capability: Capability, identity: Identity) -> str | None:
        """The one model with that capability, or None when there is none or a choice."""
        names = [card.id for card in await self.cards(identity) if capability in card.capabilities]
        return names[0] if len(names) == 1 else None

    def _traits_of(self, model: str) -> Traits:
        route = self._router.resolve(model)
        seats = route.seats if route.trial is None else (*route.seats, route.trial)
        has_local = any(not isinstance(seat.deployment.backend, Forwarder) for seat in seats)
        return Traits(has_local, isinstance(route.policy, PrefixAffinity))
