"""The fan-out of changes: every subscriber is told, coalesced and bounded, and none waits for another."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from typing import Any

import attrs
import trio
import trio.testing
from hypothesis import given, settings, strategies as st
from trio.testing import MockClock

from tests.effort import examples
from tests.injection import cancel_everywhere
from tests.peer import client_peer, settle
from tests.server.harness import ACKNOWLEDGED, news_of
from trio_mcp import Server, SessionOptions
from trio_mcp.server.changes import RESOURCE_UPDATED, SLICE, TOOLS_CHANGED, Changes, Listener, Topic

TOPICS: list[Topic] = [(TOOLS_CHANGED, None), *((RESOURCE_UPDATED, f"x://{name}") for name in "abc")]


@attrs.define(eq=False)
class SlowLink:
    """A link with room for a few messages until they are read; it notes the state that each message saw."""

    capacity: int
    versions: Counter[Topic]
    wanted: set[Topic] = attrs.Factory(set)
    since: dict[Topic, int] = attrs.Factory(dict)
    full: list[Topic] = attrs.Factory(list)
    told: dict[Topic, list[int]] = attrs.Factory(lambda: defaultdict(list))
    lot: trio.lowlevel.ParkingLot = attrs.Factory(trio.lowlevel.ParkingLot)
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)

    def send(self, topic: Topic) -> bool:
        assert topic in self.wanted, "only what it asked for"
        if len(self.full) >= self.capacity:
            return False
        self.full.append(topic)
        self.told[topic].append(self.versions[topic])
        return True

    async def room(self) -> None:
        while len(self.full) >= self.capacity:
            await self.lot.park()

    def read(self, count: int) -> None:
        del self.full[:count]
        self.lot.unpark_all()


steps = st.one_of(
    st.tuples(st.just("announce"), st.sampled_from(TOPICS), st.integers(1, 5)),
    st.tuples(st.just("add"), st.integers(0, 3), st.sampled_from(TOPICS)),
    st.tuples(st.just("remove"), st.integers(0, 3), st.sampled_from(TOPICS)),
    st.tuples(st.just("leave"), st.integers(0, 3), st.none()),
    st.tuples(st.just("read"), st.integers(0, 3), st.integers(1, 5)),
    st.tuples(st.just("turns"), st.integers(1, 4), st.none()),
)


@settings(max_examples=examples(200))
@given(capacity=st.integers(1, 3), played=st.lists(steps, max_size=60))
async def test_whatever_happens_every_subscriber_learns_of_the_last_state_and_nothing_else(  # noqa: C901 - one story with many actors
    capacity: int, played: list[Any]
) -> None:
    """Any interleaving of changes, listeners that come and go, slow readers and turns of the event loop."""
    changes = Changes()
    versions: Counter[Topic] = Counter()
    links: dict[int, tuple[Listener, SlowLink]] = {}

    async def run(listener: Listener, link: SlowLink) -> None:
        with link.scope:
            await listener.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(changes.run)
        for kind, first, second in played:
            if kind == "announce":
                for _ in range(second):
                    versions[first] += 1
                    changes.announce(*first)
            elif kind == "turns":
                for _ in range(first):
                    await trio.lowlevel.checkpoint()
            elif kind == "add":
                if first not in links:
                    link = SlowLink(capacity, versions)
                    listener = Listener(link.send, link.room)
                    links[first] = listener, link
                    nursery.start_soon(run, listener, link)
                listener, link = links[first]
                if second not in link.wanted:
                    link.wanted.add(second)
                    link.since[second] = versions[second]
                    link.told[second].clear()
                    changes.add(listener, second)
            elif first in links:
                listener, link = links[first]
                if kind == "remove":
                    link.wanted.discard(second)
                    changes.remove(listener, second)
                elif kind == "leave":
                    changes.remove_all(listener)
                    link.scope.cancel()
                    del links[first]
                else:
                    link.read(second)
            for listener, link in links.values():
                assert listener.topics == link.wanted
                assert set(listener.waiting) <= link.wanted, "what waits is bounded by what was asked for"
        for _ in range(len(TOPICS) + 1):
            await settle()
            for _, link in links.values():
                link.read(capacity)
        for _, link in links.values():
            for topic in link.wanted:
                changed = versions[topic] - link.since[topic]
                assert len(link.told[topic]) <= changed + 1, "never more often than it changed"
                assert not changed or link.told[topic][-1] == versions[topic], "the last state is not missed"
        assert set(changes.topics) == {topic for _, link in links.values() for topic in link.wanted}
        nursery.cancel_scope.cancel()


async def test_changes_from_many_threads_reach_everyone() -> None:
    """`notify_…` is called from sync tools, and from threads that trio knows nothing of."""
    server = Server("test")
    server.add_resource("x://{name}", lambda name: name, name="x")
    uris = [f"x://{number}" for number in range(8)]
    async with client_peer(server) as wire, client_peer(server) as other:
        for each in (wire, other):
            await each.listen(1, resourceSubscriptions=uris)

        def announce(uri: str) -> None:
            for _ in range(200):
                server.notify_resource_updated(uri)

        threads = [threading.Thread(target=announce, args=[uri]) for uri in uris]
        for thread in threads:
            thread.start()
        for thread in threads:
            await trio.to_thread.run_sync(thread.join)
        for each in (wire, other):
            news = await news_of(each)
            while more := await news_of(each):
                news += more
            assert {uri for _, _, uri in news} == set(uris)


async def test_a_subscriber_that_does_not_read_costs_bounded_memory_and_delays_no_other(
    autojump_clock: MockClock,
) -> None:
    server = Server("test", options=SessionOptions(max_outgoing_messages=8))
    server.add_resource("x://{name}", lambda name: name, name="x")
    uris = [f"x://{number}" for number in range(50)]
    async with client_peer(server) as stalled, client_peer(server) as reading:
        for number in range(20):
            await stalled.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}, number)
        await reading.listen(1, resourceSubscriptions=uris)
        for turn in range(40):
            for uri in uris:
                for _ in range(5):
                    server.notify_resource_updated(uri)
                server.notify_resource_updated(f"y://{turn}/{uri}")  # no subscriber
            news = await news_of(reading)
            assert Counter(uri for _, _, uri in news) == Counter(uris), "once each, at once"
        statistics = server.statistics()
        assert (statistics.sessions, statistics.listening) == (2, 21)
        assert statistics.topics == statistics.watched_resources == len(uris)
        assert 0 < statistics.messages_waiting <= 8
        assert 0 < statistics.changes_waiting <= 20 * len(uris)
        told: list[Any] = []
        while some := stalled.arrived():
            told += some
            await settle()
        last = [message.params["uri"] for message in told if message.method != ACKNOWLEDGED]
        assert Counter(last[-20 * len(uris) :]) == Counter(uris * 20), "the last state of everything, for each of them"


async def test_a_change_for_many_is_told_in_slices_that_others_run_between(autojump_clock: MockClock) -> None:
    """A thousand listeners must not hold up a call."""
    changes = Changes()
    told = 0

    def send(topic: Topic) -> bool:
        nonlocal told
        told += 1
        return True

    async with trio.open_nursery() as nursery:
        for _ in range(1000):
            listener = Listener(send, trio.lowlevel.checkpoint)
            changes.add(listener, TOPICS[0])
            nursery.start_soon(listener.run)
        await settle()
        nursery.start_soon(changes.run)
        changes.announce(TOOLS_CHANGED)
        steps: list[int] = []
        while told < 1000:
            before = told
            await trio.lowlevel.checkpoint()
            steps.append(told - before)
        assert max(steps) <= 2 * SLICE
        assert told == 1000
        nursery.cancel_scope.cancel()


async def test_a_cut_off_fan_out_has_forgotten_nothing(autojump_clock: MockClock) -> None:
    """At the end of a run what was announced is still told: see `Changes.tell_all`."""
    told: list[int] = []
    changes: list[Changes] = []

    async def scenario() -> None:
        told.clear()
        changes[:] = [Changes()]
        for number in range(3 * SLICE):

            def send(topic: Topic, number: int = number) -> bool:
                told.append(number)
                return True

            listener = Listener(send, trio.lowlevel.checkpoint)
            listener.open()
            changes[0].add(listener, TOPICS[0])
        changes[0].announce(TOOLS_CHANGED)
        with trio.move_on_after(0.01):
            await changes[0].run()

    async def check() -> None:
        changes[0].tell_all()
        assert sorted(told) == list(range(3 * SLICE))

    assert await cancel_everywhere(scenario, check) >= 3
