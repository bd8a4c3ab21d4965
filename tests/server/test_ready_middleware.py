"""`trio_mcp.middleware`: what each of them does, on a virtual clock; none stands in the way of a cancellation."""

from __future__ import annotations

import gc
import logging
import re
import weakref
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.server.harness import LEGACY, MODERN, both_eras, client_of, give_up, text_of
from tests.server.input_harness import Name
from trio_mcp import Answers, Client, Context, McpError, Principal, ResourceNotFound, Server, ToolError, types
from trio_mcp.low_level import streamable_http_client
from trio_mcp.middleware import Caching, ErrorMasking, Logging, RateLimit, SizeLimit, Timing
from trio_mcp.server.base_server import core_of
from trio_mcp.types.error_codes import OVERLOADED


def by_client(context: Context[Any]) -> str | None:
    """Take the client's name for the principal, unless it is anonymous."""
    info = context.client_info
    return None if info is None or info.name == "anonymous" else info.name


class Counting:
    """A server whose functions count their calls."""

    def __init__(self, *middleware: Any, **options: Any) -> None:
        self.calls = 0
        self.server = Server("test", middleware=middleware, principal=by_client, **options)
        self.server.add_tool(self.double)
        self.server.add_tool(self.nap)
        self.server.add_tool(self.ask)
        self.server.add_tool(self.fail)
        self.server.add_resource("note://1", self.note)
        self.server.add_prompt(self.greet)

    async def double(self, x: int) -> int:
        self.calls += 1
        return 2 * x

    async def nap(self, seconds: float) -> str:
        self.calls += 1
        await trio.sleep(seconds)
        return "rested"

    async def ask(self, ctx: Context) -> str:
        self.calls += 1
        answer = await ctx.elicit("Who?", Name)
        return str(answer.data)

    async def fail(self, how: str = "bug") -> str:
        self.calls += 1
        raise {"bug": KeyError("secret"), "told": ToolError("try x=2"), "protocol": McpError(-32000, "no")}[how]

    async def note(self) -> str:
        self.calls += 1
        return "a note"

    async def greet(self, name: str) -> str:
        self.calls += 1
        return f"Hello {name}"


def client_named(counting: Counting, name: str = "anonymous", revision: str = MODERN) -> Any:
    info = types.Implementation(name=name, version="1")
    answers = Answers(elicitation=lambda question: {"name": "Ann"})
    # Not `client_of`: its deadline is on the clock that these tests jump ahead.
    return Client(counting.server, mode=revision, client_info=info, answers=answers)


async def outcome(client: Client, method: str, params: dict[str, Any]) -> Any:
    """Return a result, or an error's code, message and data."""
    try:
        return await client.request(method, params)
    except McpError as exc:
        return exc.code, exc.message, exc.data


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the middleware has logged, without the lists that clients fetch on their own."""
    return [
        f"{each.levelname} {each.getMessage()}"
        for each in caplog.records
        if each.name == "trio_mcp.middleware" and "/list" not in each.getMessage()
    ]


ALL: list[Callable[[], Any]] = [
    lambda: Logging(params=100),
    Timing,
    lambda: RateLimit(1000),
    SizeLimit,
    lambda: Caching({"nap"}),
    ErrorMasking,
]


NAMED = [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")]


@both_eras
async def test_together_they_change_nothing_that_they_need_not(revision: str, autojump_clock: MockClock) -> None:
    plain, wrapped = Counting(), Counting(*(make() for make in ALL))

    requests = [
        ("tools/list", {}),
        ("tools/call", {"name": "double", "arguments": {"x": 2}}),
        ("tools/call", {"name": "double", "arguments": {"x": "?"}}),
        ("tools/call", {"name": "nap", "arguments": {"seconds": 2}}),
        ("tools/call", {"name": "unknown"}),
        ("tools/call", {"name": "fail", "arguments": {"how": "told"}}),
        ("tools/call", {"name": "fail", "arguments": {"how": "protocol"}}),
        ("resources/read", {"uri": "note://1"}),
        ("resources/read", {"uri": "note://2"}),
        ("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}}),
        # They see the parameters before anything has validated them.
        *((method, {key: wrong}) for method, key in NAMED for wrong in (None, [], {"a": []}, 1.5, "x\n" * 1000)),
    ]
    async with client_named(plain, revision=revision) as one, client_named(wrapped, revision=revision) as other:
        for method, params in requests:
            assert await outcome(other, method, params) == await outcome(one, method, params)
        assert text_of(await other.call_tool("ask")) == "name='Ann'"


@both_eras
@pytest.mark.parametrize("make", ALL)
async def test_a_cancellation_passes_and_leaves_nothing_behind(make: Any, revision: str, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    counting = Counting(make())

    async def started() -> None:
        while not counting.calls:
            await trio.lowlevel.checkpoint()

    async with client_named(counting, revision=revision) as client:
        await give_up(started, client.call_tool, "nap", {"seconds": 1000})
        await trio.testing.wait_all_tasks_blocked()
        assert counting.server.statistics().incoming == 0
        assert text_of(await client.call_tool("nap", {"seconds": 0})) == "rested"
    if isinstance(make(), Logging):
        assert lines(caplog)[1] == "INFO tools/call 'nap' ended: cancelled"


async def test_logging_tells_of_each_request_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with client_named(Counting(Logging()), "ann") as client:
        await client.call_tool("double", {"x": 1})
        await client.call_tool("fail", {"how": "told"})
        with pytest.raises(McpError):
            await client.call_tool("evil\nline" + 300 * "x")
        await client.call_tool("ask")
        await client.get_prompt("greet", {"name": "Bob"})
        await client.read_resource("note://1")
    told = lines(caplog)
    name = repr("evil\nline" + 191 * "x")
    assert told[0::2] == [f"{each.rpartition(' ended')[0]} begins" for each in told[1::2]]
    assert told[1::2] == [
        "INFO tools/call 'double' for 'ann' ended: ok",
        "INFO tools/call 'fail' for 'ann' ended: error",
        f"INFO tools/call {name} for 'ann' ended: error: {('unknown tool: ' + name)[:200]!r}",
        "INFO tools/call 'ask' for 'ann' ended: asks for input",
        "INFO tools/call 'ask' for 'ann' ended: ok",
        "INFO prompts/get 'greet' for 'ann' ended: ok",
        "INFO resources/read 'note://1' for 'ann' ended: ok",
    ]


async def test_logging_shows_parameters_on_request_only_and_cut(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with client_named(Counting(Logging(params=60)), revision=LEGACY) as client:
        await client.get_prompt("greet", {"name": 100 * "x"})
    assert lines(caplog)[0] == (
        "INFO prompts/get 'greet' begins: " + str({"name": "greet", "arguments": {"name": 100 * "x"}})[:60]
    )


async def test_logging_masks_what_it_recognises_as_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with client_named(Counting(Logging(params=200)), revision=LEGACY) as client:
        await client.get_prompt("greet", {"name": "password: hunter2"})
        with pytest.raises(McpError):
            await client.read_resource("note://1?key=hunter3")
        with pytest.raises(McpError):
            await client.get_prompt("note://1?key=hunter4")  # which the error repeats
    assert "hunter" not in caplog.text
    begins = [line for line in lines(caplog) if "begins" in line]
    assert begins == [
        "INFO prompts/get 'greet' begins: {'name': 'greet', 'arguments': {'name': 'password: ***'}}",
        "INFO resources/read 'note://1?key=***' begins: {'uri': 'note://1?key=***'}",
        "INFO prompts/get 'note://1?key=***' begins: {'name': 'note://1?key=***'}",
    ]


@pytest.mark.parametrize("before", ["", f"password={250 * 'p'} "], ids=["", "behind another"])
@pytest.mark.parametrize("shown", range(40, 100, 3))
async def test_logging_masks_a_secret_that_is_cut(shown: int, before: str, caplog: pytest.LogCaptureFixture) -> None:
    """What makes the beginning of a text a secret may stand behind what is logged, and behind what is looked at."""
    caplog.set_level(logging.INFO)
    async with client_named(Counting(Logging(params=shown)), revision=LEGACY) as client:
        await client.get_prompt("greet", {"name": f"{before}postgres://user:{40 * 'hunter2'}@host/{600 * 'x'}"})
    begins = lines(caplog)[0].partition(" begins: ")[2]
    assert len(begins) <= shown
    assert "hunt" not in begins


async def test_timing_tells_how_long_and_warns_of_the_slow(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level(logging.INFO)
    async with client_named(Counting(Timing(slow=3))) as client:
        await client.call_tool("nap", {"seconds": 2.5})
        await client.call_tool("nap", {"seconds": 3.5})
        with trio.move_on_after(1):
            await client.call_tool("nap", {"seconds": 9})
        await trio.testing.wait_all_tasks_blocked()  # the server hears of it when the client has left already
        await client.call_tool("fail")
    assert [re.sub(r"\.\d ms", " ms", line) for line in lines(caplog)] == [
        "INFO tools/call 'nap' took 2500 ms",
        "WARNING tools/call 'nap' took 3500 ms",
        "INFO tools/call 'nap' took 1000 ms",
        "INFO tools/call 'fail' took 0 ms",
    ]


async def refusals(client: Client, calls: int) -> list[float]:
    """Make calls at once, and return for each how long it is told to wait; 0 if it was answered."""
    waits = []
    for _ in range(calls):
        found = await outcome(client, "tools/call", {"name": "double", "arguments": {"x": 1}})
        waits.append(found[2]["retryAfter"] if type(found) is tuple else 0.0)
        if waits[-1]:
            assert found[:2] == (OVERLOADED, f"too many requests; try again in {waits[-1]:g} s")
    return waits


async def test_a_bucket_empties_and_fills(autojump_clock: MockClock) -> None:
    counting = Counting(RateLimit(2, 3))
    async with client_named(counting, "ann", revision=LEGACY) as client:
        assert await refusals(client, 5) == [0, 0, 0, 0.5, 0.5]
        await trio.sleep(0.25)
        assert await refusals(client, 1) == [0.25]  # a refusal takes nothing
        await trio.sleep(0.25)
        assert await refusals(client, 2) == [0, 0.5]
        await trio.sleep(1)
        assert await refusals(client, 3) == [0, 0, 0.5]
        await trio.sleep(1000)  # no more than fits is saved
        assert await refusals(client, 4) == [0, 0, 0, 0.5]
    assert counting.calls == 3 + 1 + 2 + 3


async def test_the_rate_in_the_long_run(autojump_clock: MockClock) -> None:
    counting = Counting(RateLimit(3))
    async with client_named(counting, revision=LEGACY) as client:
        for _ in range(300):
            await refusals(client, 1)
            await trio.sleep(0.1)
    assert counting.calls == 6 + 3 * 30 - 1  # what the bucket holds, and 30 seconds


async def test_each_caller_has_a_bucket(autojump_clock: MockClock) -> None:
    """A principal has one for all its connections; without one each connection has its own."""
    counting = Counting(RateLimit(1, 1))
    names = ["ann", "ann", "bob", "anonymous", "anonymous"]
    found = []
    for name in names:
        async with client_named(counting, name, revision=LEGACY) as client:
            found.append(await refusals(client, 2))
    assert found == [[0, 1], [1, 1], [0, 1], [0, 1], [0, 1]]


async def test_requests_over_http_without_principal_share_a_bucket(autojump_clock: MockClock) -> None:
    """Each of them is a client of its own to the server."""
    counting = Counting(RateLimit(1, 2))
    async with counting.server.asgi_app(allowed_hosts=["test"]) as app:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport) as http:
            for expected in ([0, 0], [1, 1]):
                target = lambda: streamable_http_client("http://test/mcp", http_client=http)  # noqa: E731
                info = types.Implementation(name="anonymous", version="1")
                async with Client(target, mode=MODERN, client_info=info) as client:
                    assert await refusals(client, 2) == expected


async def test_the_number_of_buckets_is_bounded(autojump_clock: MockClock) -> None:
    who = iter("abcabca")
    counting = Counting(RateLimit(1, 1, key=lambda _: next(who), max_callers=2))
    async with client_named(counting, revision=LEGACY) as client:
        assert await refusals(client, 3) == [0, 0, 0]
        assert await refusals(client, 2) == [0, 0]  # c has driven a out, and a has driven b out
        assert await refusals(client, 1) == [0]
        await trio.sleep(1)
        assert await refusals(client, 1) == [0]


async def test_a_full_bucket_is_not_kept(autojump_clock: MockClock) -> None:
    class Caller:
        pass

    callers: list[weakref.ref[Caller]] = []

    def new_caller(context: Context[Any]) -> Caller:
        caller = Caller()
        callers.append(weakref.ref(caller))
        return caller

    async with client_named(Counting(RateLimit(1, 5, key=new_caller)), revision=LEGACY) as client:
        for pause in (0.5, 0.7, 0):
            await refusals(client, 1)
            await trio.sleep(pause)
        gc.collect()
        assert [each() is not None for each in callers] == [False, True, True]


@both_eras
async def test_a_result_that_is_too_large_is_refused(revision: str) -> None:
    server = Server("test", middleware=[SizeLimit(1000)])
    server.add_tool(lambda size: size * "x", name="text")
    server.add_resource("text://{size}", lambda size: int(size) * "x", name="text")
    told = r"the result has \d+ bytes, more than the limit of 1000; ask for less"
    async with client_of(server, revision) as client:
        assert text_of(await client.call_tool("text", {"size": 900})) == 900 * "x"
        result = await client.call_tool("text", {"size": 1000})
        assert result.is_error
        assert re.fullmatch(told, text_of(result))
        await client.read_resource("text://800")
        with pytest.raises(McpError, match=told):
            await client.read_resource("text://1000")


NAMES = {"double", "fail", "ask", "greet", "note://1"}


@both_eras
async def test_a_result_is_used_again_until_it_is_too_old(revision: str, autojump_clock: MockClock) -> None:
    caching = Caching(NAMES, ttl=60)
    counting = Counting(caching)

    async def calls(client: Client) -> list[int]:
        """Make each request twice, and return the numbers of calls so far."""
        counts = []
        for method, params in [
            ("tools/call", {"name": "double", "arguments": {"x": 1}}),
            ("tools/call", {"name": "double", "arguments": {"x": 2}}),
            ("resources/read", {"uri": "note://1"}),
            ("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}}),
        ]:
            assert await client.request(method, params) == await client.request(method, params)
            counts.append(counting.calls)
        return counts

    async with client_named(counting, revision=revision) as client:
        assert await calls(client) == [1, 2, 3, 4]
        await trio.sleep(59)
        assert await calls(client) == [4, 4, 4, 4]
        await trio.sleep(1)
        assert await calls(client) == [5, 6, 7, 8]
        caching.clear()
        assert await calls(client) == [9, 10, 11, 12]


@both_eras
async def test_neither_errors_nor_questions_nor_what_is_not_named_are_cached(revision: str) -> None:
    counting = Counting(Caching(NAMES))
    async with client_named(counting, revision=revision) as client:
        for how in ("bug", "told"):
            for _ in range(2):
                assert (await client.call_tool("fail", {"how": how})).is_error
        for _ in range(2):
            with pytest.raises(McpError):
                await client.call_tool("fail", {"how": "protocol"})
            await client.call_tool("nap", {"seconds": 0})
        assert counting.calls == 8
        asked = counting.calls
        await client.call_tool("ask")
        once = counting.calls - asked
        await client.call_tool("ask")
        # In the legacy era an answered call looks like any other. In the modern one the question is asked each time.
        assert counting.calls - asked - once == (0 if revision == LEGACY else once)


async def test_what_is_cached_is_the_principals_and_the_revisions() -> None:
    scopes = frozenset({"read"})
    counting = Counting(Caching(NAMES))

    def principal(context: Context[Any]) -> Principal | None:
        name = by_client(context)
        return None if name is None else Principal(name, scopes=scopes)

    core_of(counting.server).settings.principal = principal
    for name, revision, added in [
        ("ann", MODERN, 1),
        ("ann", MODERN, 0),
        ("ann", LEGACY, 1),
        ("bob", MODERN, 1),
        ("anonymous", MODERN, 1),
        ("anonymous", MODERN, 0),
    ]:
        before = counting.calls
        async with client_named(counting, name, revision=revision) as client:
            await client.call_tool("double", {"x": 1})
        assert counting.calls - before == added, (name, revision)
    scopes = frozenset()
    async with client_named(counting, "ann") as client:
        await client.call_tool("double", {"x": 1})
    assert counting.calls == before + 1


async def test_a_cached_result_can_not_be_changed_from_outside() -> None:
    async def spoil(context: Context[Any], call_next: Any) -> Any:
        result = await call_next()
        result["content"].append({"type": "text", "text": "more"}) if context.method == "tools/call" else None
        return result

    async with client_named(Counting(spoil, Caching(NAMES))) as client:
        for _ in range(3):
            assert len((await client.call_tool("double", {"x": 1})).content) == 2


@pytest.mark.parametrize("limit", [{"max_entries": 2}, {"max_bytes": 100}])
async def test_the_cache_is_bounded_and_forgets_what_was_not_used_for_longest(limit: dict[str, Any]) -> None:
    counting = Counting(Caching(NAMES, **limit))
    async with client_named(counting, revision="2024-11-05") as client:
        for x, count in [(1, 1), (2, 2), (1, 2), (3, 3), (1, 3), (2, 4), (3, 5)]:
            await client.call_tool("double", {"x": x})
            assert counting.calls == count, x


async def test_a_result_larger_than_the_cache_is_not_kept() -> None:
    counting = Counting(Caching(NAMES, max_bytes=10))
    async with client_named(counting) as client:
        for count in (1, 2):
            await client.call_tool("double", {"x": 1})
            assert counting.calls == count


def test_another_run_of_trio_has_another_clock() -> None:
    """What an earlier run has left is not taken for fresh, and makes no caller wait for longer than usual."""
    cached, limited = Counting(Caching(NAMES)), Counting(RateLimit(1, 1))

    async def call(counting: Counting) -> list[float]:
        async with client_named(counting, "ann", revision=LEGACY) as client:
            return await refusals(client, 2)

    for start, waits in ((1000.0, [0, 1]), (0.0, [1, 1]), (5000.0, [0, 1])):
        clock = MockClock()
        clock.jump(start)
        trio.run(call, cached, clock=clock)
        assert trio.run(call, limited, clock=clock) == waits
    assert cached.calls == 3


@both_eras
@pytest.mark.parametrize("expose", [False, True])
async def test_an_unexpected_error_gets_a_number_that_is_in_the_log(
    revision: str, expose: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(context: Context[Any], call_next: Any) -> Any:
        if context.method == "completion/complete":
            raise KeyError("secret")
        return await call_next()

    counting = Counting(ErrorMasking(text="sorry"), breaks, expose_errors=expose)
    server = counting.server
    server.add_resource("bad://1", lambda: 1 / 0, name="bad")
    server.add_prompt(counting.fail, name="bad")
    server.add_method("com.example/bad", lambda params, ctx: 1 / 0)
    server.add_completion(lambda value: [], prompt="greet", argument="name")
    argument = {"name": "name", "value": ""}
    outer = Server("outer", middleware=[ErrorMasking(text="sorry")])
    inner = Counting()
    outer.mount(inner.server)
    expected = []
    for each, method, params in [
        (server, "tools/call", {"name": "fail"}),
        (server, "resources/read", {"uri": "bad://1"}),
        (server, "prompts/get", {"name": "bad"}),
        (server, "com.example/bad", {}),
        (server, "completion/complete", {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": argument}),
        (outer, "tools/call", {"name": "fail"}),
    ]:
        async with client_of(each, revision) as client:
            found = await outcome(client, method, params)
        code, told, _ = found if type(found) is tuple else (-32603, found["content"][0]["text"], None)
        match = re.fullmatch(r"sorry \(error ([0-9a-f]{8})\)", told)
        assert match
        assert code == -32603
        expected.append(match[1])
    records = [each for each in caplog.records if each.name == "trio_mcp.middleware"]
    assert [each.getMessage()[6:14] for each in records] == expected
    assert records[0].getMessage().endswith(": tools/call 'fail' for 'trio_mcp': KeyError('secret')")
    # The library itself has logged what functions raised, not what a middleware raised.
    assert [each.exc_info is not None for each in records] == [False, False, False, False, True, False]


@both_eras
async def test_errors_that_are_meant_for_the_client_are_not_masked(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    counting = Counting(ErrorMasking())

    @counting.server.resource("gone://1")
    async def gone() -> str:
        raise ResourceNotFound("nothing there")

    async with client_named(counting, revision=revision) as client:
        assert text_of(await client.call_tool("fail", {"how": "told"})) == "try x=2"
        with pytest.raises(McpError, match=r"^no "):
            await client.call_tool("fail", {"how": "protocol"})
        with pytest.raises(McpError, match="Resource not found"):
            await client.read_resource("gone://1")
    assert lines(caplog) == []


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: RateLimit(0), ValueError, "rate must be more than 0"),
        (lambda: RateLimit(float("nan")), ValueError, "rate must be more than 0"),
        (lambda: RateLimit("5"), TypeError, "rate must be a number"),
        (lambda: RateLimit(1, 0), ValueError, "burst"),
        (lambda: RateLimit(1, max_callers=0), ValueError, "max_callers"),
        (lambda: Caching("double"), TypeError, "write {'double'}"),
        (lambda: Caching({""}), ValueError, "a name"),
        (lambda: Caching({"a"}, ttl=0), ValueError, "ttl"),
        (lambda: Caching({"a"}, max_entries=0), ValueError, "max_entries"),
        (lambda: Caching({"a"}, max_bytes=0), ValueError, "max_bytes"),
        (lambda: SizeLimit(0), ValueError, "max_bytes"),
        (lambda: Timing(slow=-1), ValueError, "slow"),
        (lambda: Server("x", middleware=[Timing]), TypeError, "write Timing(), not Timing"),
        (lambda: Server("x", middleware=[None]), TypeError, "a middleware must be an async function"),
    ],
)
def test_wrong_settings_are_refused(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value)
