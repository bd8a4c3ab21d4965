"""The client's cache of results (`server/utilities/caching`, 2026-07-28)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from trio.testing import MockClock

from tests.client.scripted import scripted
from tests.effort import examples
from tests.injection import cancel_everywhere
from tests.server.harness import LEGACY, MODERN
from trio_mcp import (
    Answers,
    CacheHint,
    Client,
    Context,
    ListOptions,
    McpError,
    Principal,
    RemoteProtocolError,
    ResponseCache,
    Server,
    TransportError,
)
from trio_mcp.client.cache import RequestInFlight
from trio_mcp.jsonrpc.messages import ErrorData
from trio_mcp.schema.validator import SchemaValidator

URI = "test://x"


class Reads(Server):
    """A server with a resource that may be kept for a minute; it counts the reads."""

    def __init__(self, scope: Any = "private") -> None:
        hint = CacheHint(ttl=60, scope=scope)
        super().__init__("test", lists=ListOptions(cache_hints={"resources/read": hint}))
        self.reads = 0

        @self.resource(URI)
        async def read() -> str:
            self.reads += 1
            return "x"


def contents(**hints: Any) -> dict[str, Any]:
    return {"resultType": "complete", "contents": [{"uri": URI, "text": "x"}], **hints}


FOR_A_SECOND = contents(ttlMs=1000, cacheScope="private")


async def test_a_result_is_fresh_for_its_ttl_and_not_longer(autojump_clock: MockClock) -> None:
    """`now < t_received + ttlMs`."""
    answers = {"resources/read": FOR_A_SECOND}
    async with scripted(answers, revision=MODERN, cache=ResponseCache()) as (client, asked, _):
        await client.read_resource(URI)
        await trio.sleep(0.75)
        await client.read_resource(URI)
        assert len(asked) == 1
        await trio.sleep(0.25)
        await client.read_resource(URI)
        assert len(asked) == 2


@pytest.mark.parametrize(("scope", "asked_by_the_second"), [("public", 0), ("private", 1)])
async def test_only_what_is_public_is_for_other_principals(scope: str, asked_by_the_second: int) -> None:
    """It says: "Caches MUST NOT be shared across authorization contexts"; without a principal each client is one."""
    alice, same, other = (Principal("alice", scopes={each}) for each in ("read", "read", "write"))
    for names in (("alice", "bob"), (alice, "alice"), (alice, other), (None, None), (alice, same)):
        server, cache = Reads(scope), ResponseCache()
        for name in names:
            async with Client(server, cache=cache, principal=name) as client:
                await client.read_resource(URI)
                await client.read_resource(URI)
        assert server.reads == 1 + (asked_by_the_second if names != (alice, same) else 0), names


async def test_a_change_meanwhile_keeps_the_answer_out() -> None:
    cache = ResponseCache()

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        cache.changed("resources", URI)
        return FOR_A_SECOND

    async with scripted({"resources/read": answer}, revision=MODERN, cache=cache) as (client, _, _):
        await client.read_resource(URI)
        assert len(cache) == 0


async def test_a_caller_can_not_change_what_the_next_one_gets() -> None:
    async with scripted({"resources/read": FOR_A_SECOND}, revision=MODERN, cache=ResponseCache()) as (client, asked, _):
        for _ in range(3):
            result = await client.read_resource(URI)
            assert result.contents[0].text == "x"  # type: ignore[union-attr]
            result.contents[0].text = "y"  # type: ignore[union-attr]
        assert len(asked) == 1


async def test_an_invalid_cursor_discards_every_page_of_its_list() -> None:
    def answer(params: dict[str, Any]) -> Any:
        if params.get("cursor") == "old":
            return ErrorData(-32602, "invalid cursor")
        return {"resources": [], "ttlMs": 1000, "cacheScope": "public", "nextCursor": "old"}

    cache = ResponseCache()
    async with scripted({"resources/list": answer}, revision=MODERN, cache=cache) as (client, _, _):
        await client.list_resources()
        assert len(cache) == 1
        with pytest.raises(McpError):
            await client.list_resources("old")
        assert len(cache) == 0


async def test_a_cache_is_for_one_server() -> None:
    cache = ResponseCache()
    Client(Server("one"), cache=cache)
    with pytest.raises(ValueError, match="a ResponseCache is for one server"):
        Client(Server("two"), cache=cache)


async def test_a_stale_result_is_returned_on_request_when_the_server_is_unreachable(autojump_clock: MockClock) -> None:
    """Clients MAY serve stale responses if errors occur; but an error of the server's is its answer."""
    answers: dict[str, Any] = {"resources/read": FOR_A_SECOND}
    cache = ResponseCache(stale_if_error=10)
    async with scripted(answers, revision=MODERN, cache=cache) as (client, _, wire):
        await client.read_resource(URI)
        await trio.sleep(2)
        answers["resources/read"] = ErrorData(-32603, "broken")
        with pytest.raises(McpError):
            await client.read_resource(URI)
        answers["resources/read"] = lambda params: None  # no answer at all
        assert (await client.read_resource(URI, timeout=1)).contents
        await wire.close()
        await trio.testing.wait_all_tasks_blocked()
        assert (await client.read_resource(URI)).contents
        await trio.sleep(20)
        with pytest.raises(TransportError):
            await client.read_resource(URI)


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_change_notification_drops_the_results_it_is_about(revision: str) -> None:
    """ "the notification invalidates the cached response", whichever era it comes from."""
    hint = {"tools/list": CacheHint(ttl=60), "resources/read": CacheHint(ttl=60)}
    server = Server("test", lists=ListOptions(cache_hints=hint))
    cache = ResponseCache()

    @server.resource(URI)
    async def read() -> str:
        return "x"

    @server.tool
    async def tool() -> None: ...

    async with (
        Client(server, mode=revision, cache=cache) as client,
        client.listen(tools_list_changed=True, resources=[URI]) as events,
    ):
        await client.list_tools()
        await client.read_resource(URI)
        assert len(cache) == (0 if revision == LEGACY else 2)  # a legacy server gives no ttl
        server.remove_tool("tool")
        await anext(events)
        assert len(cache) == (0 if revision == LEGACY else 1)
        server.notify_resource_updated(URI)
        await anext(events)
        assert len(cache) == 0


async def test_a_result_that_took_input_is_not_kept() -> None:
    """ "Results produced by retrying a request MUST NOT be cached", and the question that came first neither."""
    server, cache = Reads(), ResponseCache()
    server.remove_resource(URI)

    @server.resource(URI)
    async def read(ctx: Context) -> str:
        server.reads += 1
        return str(await ctx.list_roots())

    async with Client(server, mode=MODERN, answers=Answers(roots=[]), cache=cache) as client:
        for _ in range(2):
            await client.read_resource(URI)
            assert len(cache) == 0
    assert server.reads == 4  # asked and replayed, twice


async def test_an_unusable_result_is_not_kept() -> None:
    """A malformed result would fail every later call for as long as its ttl."""
    answers: dict[str, Any] = {"resources/read": {"contents": 5, "ttlMs": 1000, "cacheScope": "public"}}
    async with scripted(answers, revision=MODERN, cache=ResponseCache()) as (client, _, _):
        with pytest.raises(RemoteProtocolError):
            await client.read_resource(URI)
        answers["resources/read"] = FOR_A_SECOND
        assert (await client.read_resource(URI)).contents


def keep(cache: ResponseCache, name: str) -> None:
    assert cache.find((MODERN, "resources/read", name), "me") is None
    flight = cache.departs((MODERN, "resources/read", name))
    cache.keep(flight, "me", {"ttlMs": 1000})
    cache.landed(flight)


async def test_the_result_that_was_not_used_for_the_longest_time_goes_first() -> None:
    cache = ResponseCache(max_entries=2, max_bytes=3000)
    for name in ("a", "b"):
        keep(cache, name)
    assert cache.find((MODERN, "resources/read", "a"), "me") is not None  # so b is the older one now
    keep(cache, "c")
    keep(cache, "x" * 3000)  # it is too large to be kept, so nothing goes
    assert [cache.find((MODERN, "resources/read", name), "me") is not None for name in "abc"] == [True, False, True]


async def test_a_list_that_is_the_same_again_compiles_no_schema_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []

    class Counted(SchemaValidator):
        def __init__(self, schema: Any) -> None:
            compiled.append(schema)
            super().__init__(schema)

    monkeypatch.setattr("trio_mcp.client.tool_results.SchemaValidator", Counted)
    server = Server("test", lists=ListOptions(cache_hints={"tools/list": CacheHint(ttl=60)}))

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with Client(server, mode=MODERN, cache=ResponseCache()) as client:
        for _ in range(3):
            await client.list_tools()
            await client.call_tool("add", {"a": 1, "b": 2})
    assert len(compiled) == 1


async def test_cancelling_a_read_leaves_no_flight() -> None:
    server, cache = Reads(), ResponseCache()

    async def scenario() -> None:
        async with Client(server, mode=MODERN, cache=cache) as client:
            await client.read_resource(URI)
            await client.read_resource(URI)

    async def check() -> None:
        assert cache.statistics().pending == 0
        cache.clear()

    await cancel_everywhere(scenario, check)


def test_a_second_run_of_trio_begins_with_nothing() -> None:
    """Each run has its own clock."""
    server, cache = Reads(), ResponseCache()

    async def main() -> None:
        async with Client(server, mode=MODERN, cache=cache) as client:
            await client.read_resource(URI)
            await client.read_resource(URI)

    trio.run(main)
    trio.run(main)
    assert server.reads == 2


QUESTIONS = st.tuples(st.just(MODERN), st.just("resources/read"), st.sampled_from(["x://a", "x://a/b", "x://c"]))
OWNERS = st.sampled_from(["alice", "bob"])


@attrs.frozen
class _Said:
    number: int
    owner: str
    public: bool
    until: float


class CacheMachine(RuleBasedStateMachine):
    """Against a model that remembers everything: nothing is given that is old, changed or another's."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = ResponseCache(max_entries=4, max_bytes=3000)
        self.now = 0.0
        self.number = 0
        self.last: dict[tuple[str, Any], _Said] = {}
        self.flights: list[tuple[RequestInFlight, str]] = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("trio.current_time", lambda: self.now)
        self.patch.setattr("trio.lowlevel.current_trio_token", lambda: "one run")

    def teardown(self) -> None:
        self.patch.undo()
        self.cache.forget("resources/read")
        held = self.cache.statistics()
        assert (held.entries, held.bytes) == (0, 0)

    @rule(seconds=st.floats(0.1, 30))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(question=QUESTIONS, owner=OWNERS)
    def depart(self, question: Any, owner: str) -> None:
        if len(self.flights) < 5:
            self.flights.append((self.cache.departs(question), owner))

    @precondition(lambda self: self.flights)
    @rule(
        data=st.data(),
        ttl=st.sampled_from([1000, 20_000]) | st.sampled_from([None, -1, 0]),
        public=st.booleans(),
        size=st.sampled_from([1, 600, 5000]),
    )
    def land(self, data: Any, ttl: int | None, public: bool, size: int) -> None:
        flight, owner = self.flights.pop(data.draw(st.integers(0, len(self.flights) - 1)))
        self.number += 1
        scope = "public" if public else "private"
        hints = {"cacheScope": scope} if ttl is None else {"cacheScope": scope, "ttlMs": ttl}
        self.cache.keep(flight, owner, {"n": self.number, "pad": "x" * size, **hints})
        self.cache.landed(flight)
        if not flight.spoiled and ttl and ttl > 0:
            self.last[owner, flight.question] = _Said(self.number, owner, public, self.now + ttl / 1000)

    @rule(uri=st.sampled_from(["x://a", "x://a/b", "x://c"]))
    def change(self, uri: str) -> None:
        self.cache.changed("resources", uri)
        for key in [key for key in self.last if key[1][2] == uri]:
            del self.last[key]

    @rule(question=QUESTIONS, owner=OWNERS)
    def find(self, question: Any, owner: str) -> None:
        found = self.cache.find(question, owner)
        if found is None:
            return
        (said,) = [each for each in self.last.values() if each.number == found["n"]]
        assert said.owner == owner or said.public, "what is private is its owner's"
        assert self.now < said.until, "what is given is fresh"
        assert self.last[said.owner, question] is said, "what is given is the last that was said, and has not changed"

    @invariant()
    def it_is_bounded(self) -> None:
        held = self.cache.statistics()
        assert held.entries == len(self.cache) <= 4
        assert 0 <= held.bytes <= 3000
        assert held.pending <= len(self.flights)


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=examples(60), stateful_step_count=40)
