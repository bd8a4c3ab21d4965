"""When providers run, where, and how what they enter ends: any graph of them, any end of the request."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
import trio
from hypothesis import given, strategies as st

from tests.injection import cancel_everywhere
from tests.server.harness import both_eras, call, client_of, give_up, server_with, text_of
from trio_mcp import Context, Depends, McpError, Server, ToolError
from trio_mcp.server.features.resources import ResourceNotFound
from trio_mcp.types.error_codes import INVALID_PARAMS


def generator() -> Iterator[str]:
    yield "generator"


# --- once in a request -----------------------------------------------------------------------------------------------


async def test_values_are_shared_within_a_request_but_not_beyond() -> None:
    numbers = itertools.count(1)

    def counter() -> int:
        return next(numbers)

    def through(given: Annotated[int, Depends(counter)]) -> int:
        return given

    async def tool(
        a: Annotated[int, Depends(counter)],
        b: Annotated[int, Depends(through)],
        own: Annotated[int, Depends(counter, cache=False)],
    ) -> list[int]:
        return [a, b, own]

    async with client_of(server_with(tool)) as client:
        assert (await client.call_tool("tool")).data == [1, 1, 2]
        assert (await client.call_tool("tool")).data == [3, 3, 4]


async def test_a_method_is_one_provider_however_often_it_is_asked_for() -> None:
    class Pool:
        def get(self) -> object:
            return object()

    pool = Pool()

    async def tool(a: Annotated[Any, Depends(pool.get)], b: Annotated[Any, Depends(pool.get)]) -> bool:
        return a is b

    assert (await call(tool, {})).data is True


# --- where they run --------------------------------------------------------------------------------------------------


async def test_a_sync_provider_runs_where_the_function_that_needs_it_runs() -> None:
    """A thread's own object (an sqlite3 connection, say) is made, used and closed in that thread."""
    places: dict[str, int] = {}

    def here(name: str) -> None:
        places[name] = threading.get_ident()

    def sync() -> Iterator[None]:
        here("enter")
        yield
        here("exit")

    def plain() -> None:
        here("plain")

    async def asynchronous(given: Annotated[None, Depends(plain)]) -> None:
        here("async")

    def in_thread(a: Annotated[None, Depends(sync)], b: Annotated[None, Depends(asynchronous)]) -> None:
        here("function")

    async def in_loop(a: Annotated[None, Depends(sync)], b: Annotated[None, Depends(plain)]) -> None:
        here("function")

    loop = threading.get_ident()
    async with client_of(server_with(in_thread, in_loop)) as client:
        await client.call_tool("in_thread")
        assert places["enter"] == places["exit"] == places["function"] != loop
        assert places["async"] == places["plain"] == loop  # a dependency of an async provider runs in the loop, too
        places.clear()
        await client.call_tool("in_loop")
        assert set(places.values()) == {loop}


async def test_a_sync_function_with_dependencies_must_not_return_an_awaitable() -> None:
    """A sync decorator around an async function: what the thread entered is closed when the coroutine starts."""

    async def tool(given: str) -> None: ...

    def wrapper(given: Annotated[str, Depends(generator)]) -> Any:
        return tool(given)

    def fine(given: Annotated[str, Depends(Recorder().manager("a"))]) -> Any:
        return tool(given)

    async with client_of(server_with(wrapper, fine, expose_errors=True)) as client:
        refused = await client.call_tool("wrapper")
        assert refused.is_error
        assert "tool 'wrapper' is a sync function that returns an awaitable" in text_of(refused)
        assert not (await client.call_tool("fine")).is_error


# --- how it ends -----------------------------------------------------------------------------------------------------


class Recorder:
    """A factory of context managers that record what they see."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def manager(self, name: str) -> Any:
        async def provider() -> AsyncIterator[str]:
            self.events.append(f"+{name}")
            try:
                yield name
            except BaseException as exc:
                self.events.append(f"-{name} {type(exc).__name__}")
                raise
            else:
                self.events.append(f"-{name}")

        return provider


@both_eras
async def test_a_provider_ends_with_the_outcome_of_the_function_and_before_the_response(revision: str) -> None:
    recorder = Recorder()

    async def tool(fails: str, a: Annotated[str, Depends(recorder.manager("a"))]) -> None:
        recorder.events.append("function")
        match fails:
            case "tool":
                raise ToolError("for the model")
            case "protocol":
                raise McpError(INVALID_PARAMS, "for the client")

    async with client_of(server_with(tool), revision) as client:
        await client.call_tool("tool", {"fails": ""})
        assert recorder.events == ["+a", "function", "-a"]
        recorder.events.clear()
        result = await client.call_tool("tool", {"fails": "tool"})
        assert recorder.events == ["+a", "function", "-a ToolError"]
        assert text_of(result) == "for the model"
        recorder.events.clear()
        with pytest.raises(McpError, match="for the client"):
            await client.call_tool("tool", {"fails": "protocol"})
        assert recorder.events == ["+a", "function", "-a McpError"]


@pytest.mark.parametrize("sync", [False, True])
async def test_a_provider_that_fails_is_the_failure_of_the_function(sync: bool) -> None:
    recorder = Recorder()

    def provider(before: Annotated[str, Depends(recorder.manager("a"))], ctx: Context) -> None:
        if ctx.method == "resources/read":
            raise ResourceNotFound("gone")
        if ctx.params["name"] == "protocol":
            raise McpError(INVALID_PARAMS, "not today")
        raise ToolError("no database")

    async def function(given: Annotated[None, Depends(provider)]) -> None:
        recorder.events.append("never")

    def sync_function(given: Annotated[None, Depends(provider)]) -> None:
        recorder.events.append("never")

    chosen = sync_function if sync else function
    server = Server("test")
    server.add_tool(chosen, name="tool")
    server.add_tool(chosen, name="protocol")
    server.add_resource("file:///x", chosen, name="x")
    async with client_of(server) as client:
        assert text_of(await client.call_tool("tool")) == "no database"
        with pytest.raises(McpError, match="not today"):
            await client.call_tool("protocol")
        with pytest.raises(McpError, match="Resource not found"):
            await client.read_resource("file:///x")
    assert recorder.events == ["+a", "-a ToolError", "+a", "-a McpError", "+a", "-a ResourceNotFound"]


async def test_a_provider_must_not_swallow_the_exception() -> None:
    """There is no result to go on with: None would be a wrong answer."""

    def provider() -> Iterator[None]:
        with contextlib.suppress(ValueError):
            yield

    async def function(given: Annotated[None, Depends(provider)]) -> None:
        raise ValueError

    def sync_function(given: Annotated[None, Depends(provider)]) -> None:
        raise ValueError

    async with client_of(server_with(function, sync_function, expose_errors=True)) as client:
        for name in ("function", "sync_function"):
            result = await client.call_tool(name)
            assert result.is_error
            assert "a provider suppressed the exception" in text_of(result)


@both_eras
async def test_a_cancelled_request_ends_its_providers_inside_its_scope(revision: str) -> None:
    """They see `trio.Cancelled`, and an await during clean-up must shield itself, as anywhere."""
    recorder = Recorder()
    started, ended = trio.Event(), trio.Event()

    async def outermost() -> AsyncIterator[None]:
        try:
            yield
        finally:
            recorder.events.append(f"cancelled: {trio.current_effective_deadline() == -float('inf')}")
            ended.set()

    async def tool(a: Annotated[None, Depends(outermost)], b: Annotated[str, Depends(recorder.manager("b"))]) -> None:
        started.set()
        await trio.sleep_forever()

    async with client_of(server_with(tool), revision) as client:
        await give_up(started.wait, client.call_tool, "tool")
        await ended.wait()
    assert recorder.events == ["+b", "-b Cancelled", "cancelled: True"]


async def test_an_abandoned_thread_exits_the_context_managers_it_entered() -> None:
    started, go_on = trio.Event(), threading.Event()
    left = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def provider() -> Iterator[None]:
        yield
        token.run_sync_soon(left.set)

    def tool(given: Annotated[None, Depends(provider)]) -> None:
        token.run_sync_soon(started.set)
        go_on.wait()

    async with client_of(server_with(tool)) as client:
        await give_up(started.wait, client.call_tool, "tool")
        assert not left.is_set()
        go_on.set()
        await left.wait()


async def test_wherever_a_request_is_cancelled_its_context_managers_exit() -> None:
    """A cancellation after every step: of providers, function and exits."""
    opened: list[str] = []

    def make(name: str, before: list[Any]) -> Any:
        async def provider(**given: str) -> AsyncIterator[str]:
            await trio.lowlevel.checkpoint()
            opened.append(name)
            try:
                await trio.lowlevel.checkpoint()
                yield name
                await trio.lowlevel.checkpoint()
            finally:
                assert opened.pop() == name

        return _with_parameters(provider, before)

    async def tool(**given: str) -> str:
        await trio.lowlevel.checkpoint()
        return given["p0"]

    server = Server("test")
    outer = make("outer", [make("inner", [trio.lowlevel.checkpoint])])
    server.add_tool(_with_parameters(tool, [outer, make("other", [])]), name="tool")
    async with client_of(server) as client:

        async def scenario() -> None:
            await client.call_tool("tool")

        async def check() -> None:
            await trio.testing.wait_all_tasks_blocked()
            assert opened == []
            assert text_of(await client.call_tool("tool")) == "outer"

        assert await cancel_everywhere(scenario, check) > 5


# --- any graph -------------------------------------------------------------------------------------------------------

KINDS = ["sync", "async", "manager", "async manager"]


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[str, list[int]]]:
    """Draw providers, each with its kind and the earlier ones that it depends on."""
    count = draw(st.integers(1, 7))
    return [
        (draw(st.sampled_from(KINDS)), draw(st.lists(st.integers(0, number - 1), max_size=3)) if number else [])
        for number in range(count)
    ]


class Graph:
    """A graph of real providers, which record what happens to them."""

    def __init__(self, shape: list[tuple[str, list[int]]], fails: dict[int, str]) -> None:
        self.events: list[tuple[str, int]] = []
        self.entered: list[int] = []
        self.values: list[int] = []
        self.fails = fails
        self.providers: list[Any] = []
        for name, (kind, needs) in enumerate(shape):
            self.providers.append(self._provider(name, kind, needs))

    def _start(self, name: int, given: dict[str, int]) -> int:
        assert all(("value", number) in self.events for number in given.values())
        if self.fails.get(name) == "start":
            raise KeyError(name)
        self.events.append(("value", name))
        return name

    @contextlib.contextmanager
    def _open(self, name: int, given: dict[str, int]) -> Iterator[int]:
        value = self._start(name, given)
        self.entered.append(name)
        try:
            yield value
        finally:
            assert self.entered.pop() == name  # the reverse of the order of entry
            self.events.append(("exit", name))
            if self.fails.get(name) == "exit":
                raise LookupError(name)

    def _provider(self, name: int, kind: str, needs: list[int]) -> Any:
        def sync(**given: int) -> int:
            return self._start(name, given)

        async def asynchronous(**given: int) -> int:
            await trio.lowlevel.checkpoint()
            return self._start(name, given)

        def manager(**given: int) -> Iterator[int]:
            with self._open(name, given) as value:
                yield value

        async def async_manager(**given: int) -> AsyncIterator[int]:
            with self._open(name, given) as value:
                await trio.lowlevel.checkpoint()
                yield value

        made = dict(zip(KINDS, (sync, asynchronous, manager, async_manager), strict=True))[kind]
        return _with_parameters(made, [self.providers[number] for number in needs])


def _with_parameters(function: Any, providers: list[Any]) -> Any:
    """Give a function that takes any keywords one parameter for each provider."""
    hints = {f"p{place}": Annotated[int, Depends(provider)] for place, provider in enumerate(providers)}
    function.__annotations__ = hints
    function.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint) for name, hint in hints.items()]
    )
    return function


def reachable(shape: list[tuple[str, list[int]]], roots: list[int]) -> set[int]:
    found: set[int] = set()
    left = list(roots)
    while left:
        number = left.pop()
        if number not in found:
            found.add(number)
            left += shape[number][1]
    return found


@given(
    graphs(),
    st.lists(st.integers(0, 6), min_size=1, max_size=3),
    st.dictionaries(st.integers(0, 6), st.sampled_from(["start", "exit"]), max_size=2),
    st.booleans(),
    st.booleans(),
)
async def test_any_graph_runs_each_provider_once_and_exits_every_context_manager(
    shape: list[tuple[str, list[int]]], picked: list[int], fails: dict[int, str], sync: bool, function_fails: bool
) -> None:
    """Each at most once, after what it needs; exits in reverse; also when a provider, an exit or the function fails."""
    roots = [number % len(shape) for number in picked]
    graph = Graph(shape, fails)

    def finish(given: dict[str, int]) -> list[int]:
        graph.events.append(("function", -1))
        if function_fails:
            raise OSError
        return [given[f"p{place}"] for place in range(len(roots))]

    async def function(**given: int) -> list[int]:
        return finish(given)

    def sync_function(**given: int) -> list[int]:
        return finish(given)

    chosen = _with_parameters(sync_function if sync else function, [graph.providers[root] for root in roots])
    server = Server("test")
    server.add_tool(chosen, name="tool")
    async with client_of(server) as client:
        result = await client.call_tool("tool")
    wanted = reachable(shape, roots)
    failing = {number for number in wanted if number in fails}
    managers = {number for number in wanted if "manager" in shape[number][0]}
    started = {number for number in failing if fails[number] == "start"}
    values = [number for event, number in graph.events if event == "value"]
    exits = [number for event, number in graph.events if event == "exit"]
    assert graph.entered == []
    assert len(values) == len(set(values))
    assert set(values) <= wanted
    assert sorted(exits) == sorted(set(values) & managers)
    assert exits == [number for number in reversed(values) if number in managers]
    assert (("function", -1) in graph.events) == (not started)
    assert bool(result.is_error) == bool(started or function_fails or (failing & managers))
    if not result.is_error:
        assert set(values) == wanted
        assert text_of(result) == json.dumps(roots, separators=(",", ":"))
