"""Any sequence of calls and of passing time leaves the embedded store as a simple model of it says."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.context.config import ConversationConfig
from gateway.context.conversations import Conversations
from gateway.context.errors import Conflict, TooLarge
from gateway.context.sqlite_logs import SqliteLogs
from gateway.store.sqlite import Database
from tests.gateway.context.clock import Clock

T = TypeVar("T")

MAX_ITEMS, MAX_BYTES, TTL_S = 6, 1100, 100.0
tenants = st.sampled_from(["acme", "globex"])
ids = st.sampled_from(["one", "two"])
items = st.lists(st.integers(0, 400).map(lambda size: b"x" * size), max_size=4)


class Modelled:
    """What one conversation must be."""

    def __init__(self) -> None:
        self.version = 0
        self.items: list[bytes] = []
        self.expires_at = 0.0


class ConversationMachine(RuleBasedStateMachine):
    """Two tenants with two ids each."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.database = Database(":memory:")
        self.logs = SqliteLogs(self.database, "conversations", max_bytes=1 << 30, clock=self.clock)
        config = ConversationConfig(ttl_s=TTL_S, max_items=MAX_ITEMS, max_bytes=MAX_BYTES)
        self.conversations = Conversations(self.logs, config)
        self.model: dict[tuple[str, str], Modelled] = {}

    def teardown(self) -> None:
        self.run(self.database.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)

    def living(self, tenant: str, id: str) -> Modelled | None:
        there = self.model.get((tenant, id))
        return there if there is not None and there.expires_at > self.clock.now else None

    @rule(tenant=tenants, id=ids, items=items, offset=st.none() | st.integers(0, 1))
    def append(self, tenant: str, id: str, items: list[bytes], offset: int | None) -> None:
        there = self.living(tenant, id) or Modelled()
        expected = None if offset is None else there.version + offset
        grown = there.items + items
        fits = len(grown) <= MAX_ITEMS and sum(map(len, grown)) <= MAX_BYTES
        try:
            version = self.run(self.conversations.append(tenant, id, items, expected=expected))
        except Conflict as error:
            assert (error.current, offset) == (there.version, 1)  # noqa: PT017
        except TooLarge:
            assert not fits
        else:
            assert fits
            assert offset != 1
            assert version == there.version + 1
            there.version, there.items, there.expires_at = version, grown, self.clock.now + TTL_S
            self.model[tenant, id] = there

    @rule(tenant=tenants, id=ids)
    def get(self, tenant: str, id: str) -> None:
        there = self.living(tenant, id)
        found = self.run(self.conversations.get(tenant, id))
        assert (found is None) == (there is None)
        if found is not None and there is not None:
            assert (found.version, list(found.items)) == (there.version, there.items)
            # A read that gains less than a fiftieth is not written down.
            assert 0 <= self.clock.now + TTL_S - found.expires_at < TTL_S / 50 + 1e-6
            there.expires_at = found.expires_at

    @rule(tenant=tenants, id=ids)
    def delete(self, tenant: str, id: str) -> None:
        there = self.living(tenant, id)
        assert self.run(self.conversations.delete(tenant, id)) == (there is not None)
        self.model.pop((tenant, id), None)

    @rule(seconds=st.sampled_from([1.0, 30.0, 99.0, 100.0, 250.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def the_total_is_what_is_there(self) -> None:
        if not self.model:
            return
        query = "SELECT sum(stored), (SELECT stored FROM context_totals) FROM context_logs"
        there, total = self.run(self.database.run(lambda connection: connection.execute(query).fetchone()))
        assert (there or 0) == total


TestConversations = ConversationMachine.TestCase
TestConversations.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
