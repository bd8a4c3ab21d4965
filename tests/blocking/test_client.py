"""The client that blocks: it does what the async one does, in a thread that ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio

from tests.blocking.serving import URIS, left_behind, make_server, served, stdio
from trio_mcp import (
    Answers,
    Client as AsyncClient,
    LocalProtocolError,
    McpError,
    RequestTimeout,
    Server,
    SessionClosed,
    TransportError,
)
from trio_mcp.blocking import Client, Subscription
from trio_mcp.blocking.portal import Portal
from trio_mcp.client.subscriptions import Subscription as AsyncSubscription

ROOT = Path(__file__).parents[2]
WAYS = ["memory", "stdio", "http", "websocket"]

ABSENT = {
    "aclose": "it is `close`",
    "attached": "the objects of extensions are async",
    "session": "it is async",
}
"""What only the async client has, and why."""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = left_behind()
    yield
    deadline = time.monotonic() + 10
    while left_behind() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left_behind() == before


# --- what it offers ---------------------------------------------------------------------------------------------------


def public(kind: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def test_it_has_the_methods_of_the_async_client_with_the_same_arguments() -> None:
    ours, theirs = public(Client), public(AsyncClient)
    assert theirs.keys() - ours.keys() == ABSENT.keys()
    assert ours.keys() - theirs.keys() == {"close"}
    for name in ours.keys() & theirs.keys():
        if isinstance(theirs[name], property):
            assert inspect.signature(ours[name].fget) == inspect.signature(theirs[name].fget)
        else:
            assert parameters_of(ours[name]) == parameters_of(theirs[name]), name
            assert not inspect.iscoroutinefunction(ours[name])
            assert inspect.getdoc(ours[name])


def test_a_subscription_has_what_that_of_the_async_client_has() -> None:
    assert public(Subscription).keys() == public(AsyncSubscription).keys()


@pytest.mark.parametrize("way", WAYS)
def test_calls_block_and_return_what_the_async_client_returns(way: str) -> None:
    with served(way) as target, Client(target) as client:
        assert client.server_info is not None
        assert client.server_info.name == "desk"
        assert client.call_tool("add", {"a": 1, "b": 2}).data == 3
        assert [each.uri for each in client.iter_resources()] == URIS
        assert client.read_resource(URIS[1]).text == URIS[1]
        with pytest.raises(McpError):
            client.read_resource("memo://four")
        with pytest.raises(RequestTimeout):
            client.call_tool("wait", timeout=0.05)
        assert client.statistics().session.outgoing == 0


def test_changes_are_iterated_over() -> None:
    with Client(make_server()) as client, client.listen(resources=URIS) as events:
        assert events.honored.resource_subscriptions == URIS
        client.call_tool("touch")
        assert next(events).uri == URIS[0]  # type: ignore[union-attr]
        assert events.waiting == 0
    with pytest.raises(SessionClosed):
        next(events)


def test_what_listening_refuses_is_raised_where_it_begins() -> None:
    with Client(make_server()) as client:
        with pytest.raises(ValueError, match="nothing"), client.listen():
            pass
        with pytest.raises(ZeroDivisionError), client.listen(resources=URIS):
            raise ZeroDivisionError
        assert client.statistics().subscriptions == 0


# --- callbacks --------------------------------------------------------------------------------------------------------


def test_callbacks_are_plain_functions_that_may_block() -> None:
    heard: list[float] = []
    threads: set[threading.Thread] = set()

    def note(progress: Any) -> None:
        threads.add(threading.current_thread())
        time.sleep(0.01)
        heard.append(progress.progress)

    def answer(params: Any) -> dict[str, str]:
        threads.add(threading.current_thread())
        return {"colour": "red"}

    with Client(make_server(), answers=Answers(elicitation=answer)) as client:
        assert client.call_tool("count", {"to": 3}, on_progress=note).text == "counted"
        assert client.call_tool("ask").text == "accept"
    assert heard == [1, 2, 3]
    assert not any(each.name.startswith("Trio of") for each in threads)


def test_a_callback_that_blocks_holds_up_no_other_call() -> None:
    begun, go = threading.Event(), threading.Event()

    def answer(params: Any) -> str:
        begun.set()
        assert go.wait(30)
        return "decline"

    with Client(make_server(), answers=Answers(elicitation=answer)) as client, ThreadPoolExecutor() as pool:
        asked = pool.submit(client.call_tool, "ask")
        assert begun.wait(30)
        assert client.call_tool("add", {"a": 1, "b": 2}).data == 3
        go.set()
        assert asked.result().text == "decline"


def test_many_callbacks_that_block_leave_threads_for_the_rest() -> None:
    """Trio has 40 by default, which also look up the names of hosts."""
    begun, go = threading.Semaphore(0), threading.Event()

    def answer(params: Any) -> str:
        begun.release()
        assert go.wait(30)
        return "decline"

    with Client(make_server(), answers=Answers(elicitation=answer)) as client, ThreadPoolExecutor(50) as pool:
        asked = [pool.submit(client.call_tool, "ask") for _ in range(50)]
        try:
            assert all(begun.acquire(timeout=10) for _ in asked)
        finally:
            go.set()
        assert {each.result().text for each in asked} == {"decline"}


def test_a_callback_may_not_use_its_client() -> None:
    """Which waits for the callback."""
    raised: list[Exception] = []

    def answer(params: Any) -> str:
        for use in (client.ping, client.close):
            try:
                use()
            except Exception as exc:
                raised.append(exc)
        with Client(make_server()) as another:
            another.ping()
        return "decline"

    with Client(make_server(), answers=Answers(elicitation=answer)) as client:
        assert client.call_tool("ask").text == "decline"
    assert [type(each) for each in raised] == [LocalProtocolError] * 2
    assert all("a callback can't use" in str(each) for each in raised)


# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [pytest.param("memory", marks=pytest.mark.again), "http"])
def test_two_hundred_threads_share_a_client(way: str) -> None:
    with served(way) as target, Client(target) as client, ThreadPoolExecutor(200) as pool:
        barrier = threading.Barrier(200)

        def add(number: int) -> Any:
            barrier.wait(60)
            return [client.call_tool("add", {"a": number, "b": each}).data for each in range(5)]

        assert list(pool.map(add, range(200))) == [[number + each for each in range(5)] for number in range(200)]


def test_the_calls_under_way_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.blocking.portal.MOST_CALLS", 2)
    with Client(make_server()) as client, ThreadPoolExecutor() as pool:
        waiting = [pool.submit(client.call_tool, "wait", {"seconds": 1}) for _ in range(2)]
        while client._portal._count < 2:  # noqa: SLF001
            time.sleep(0.01)
        with pytest.raises(LocalProtocolError, match="2 calls of this blocking Client are under way"):
            client.ping()
        assert [each.result().text for each in waiting] == ["waited"] * 2
        client.ping()


def test_calls_of_other_threads_end_with_the_block() -> None:
    with ThreadPoolExecutor() as pool:
        with Client(make_server()) as client:
            waiting = pool.submit(client.call_tool, "wait")
            while not client.statistics().session.outgoing:
                time.sleep(0.01)
            pool.submit(client.close).result()
        with pytest.raises(SessionClosed):
            waiting.result()
        with pytest.raises(SessionClosed):
            client.ping()
        client.close()


def test_a_half_read_iterator_ends_with_the_block() -> None:
    with Client(make_server()) as client:
        resources = client.iter_resources()
        assert next(resources).uri == URIS[0]
    with pytest.raises(SessionClosed):
        next(resources)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_loop_is_not_stopped() -> None:
    client = Client(make_server())

    async def use(advice: str) -> None:
        with pytest.raises(RuntimeError, match=f"would stop the loop of .*{advice}"):
            client.ping()
        with pytest.raises(RuntimeError, match=f"would stop the loop of .*{advice}"), client:
            pass

    trio.run(use, r"use trio_mcp\.Client$")
    asyncio.run(use(r"asyncio\.to_thread, or run Trio as its guest"))


def test_asyncio_reaches_it_through_a_thread() -> None:
    def work() -> Any:
        with Client(make_server()) as client:
            return client.call_tool("add", {"a": 1, "b": 2}).data

    async def main() -> Any:
        return await asyncio.to_thread(work)

    assert asyncio.run(main()) == 3


def test_it_is_used_in_its_block_and_entered_once() -> None:
    client = Client(make_server())
    with pytest.raises(LocalProtocolError, match="is not connected"):
        client.ping()
    with client:
        pass
    with pytest.raises(LocalProtocolError, match="entered only once"), client:
        pass


@pytest.mark.parametrize(("target", "settings"), [(7, {}), ("http://x/", {"mode": "x"}), ("http://x/", {"on_log": 7})])
def test_mistakes_are_refused_before_a_thread_starts(target: Any, settings: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Client(target, **settings)


def test_a_server_that_is_not_there_is_one_error() -> None:
    with pytest.raises(TransportError, match="Connection refused"), Client("http://127.0.0.1:9/mcp"):
        pass


FORKED = """
import os
from tests.blocking.serving import make_server
from trio_mcp import LocalProtocolError
from trio_mcp.blocking import Client

with Client(make_server()) as client:
    child = os.fork()
    if not child:
        try:
            client.ping()
        except LocalProtocolError as exc:
            print(exc, flush=True)
    else:
        os.waitpid(child, 0)
        client.ping()
        print("the parent goes on", flush=True)
"""


def run(program: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, **options)


def test_a_fork_is_told_what_to_do() -> None:
    done = run(FORKED)
    assert (done.returncode, done.stderr) == (0, "")
    told, goes_on = done.stdout.splitlines()
    assert "a fork has none of its threads" in told
    assert goes_on == "the parent goes on"


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [pytest.param("make_server()", marks=pytest.mark.again), "stdio()"])
def test_a_program_that_leaves_no_block_ends(target: str) -> None:
    done = run(
        "from tests.blocking.serving import *\nfrom trio_mcp.blocking import Client\n"
        f"client = Client({target}).__enter__()\nclient.ping()\nprint('done')"
    )
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "the program has ended while a blocking Client was open" in done.stderr


THREADS = """
import threading
from tests.blocking.serving import make_server
from trio_mcp.blocking import Client

for _ in range(5):
    with Client(make_server()) as client:
        client.ping()
    print(threading.active_count())
"""


def test_a_client_leaves_no_thread() -> None:
    """In a program of its own: Trio's idle threads, of which other tests leave some, would hide one."""
    counts = run(THREADS).stdout.split()
    assert len(counts) == 5
    assert len(set(counts)) == 1


def test_a_failure_in_the_block_is_raised_as_it_is() -> None:
    error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError) as caught, Client(make_server()):
        raise error
    assert caught.value is error


class Stop(BaseException):
    """What a signal raises in these tests; Ctrl-C would end the run of the tests if it struck elsewhere."""


@contextlib.contextmanager
def stopped_after(seconds: float, error: type[BaseException], *, again: float = 3) -> Iterator[None]:
    """Raise an exception in the block after some time, wherever it is; Python drops one that strikes in a finalizer."""

    def strike(*_: object) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, seconds, again)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def use(target: Any, timeout: float | None = None) -> None:
    with Client(target) as client:
        for uri in (each.uri for each in client.iter_resources()):
            client.read_resource(uri)
        with client.listen(resources=URIS):
            client.call_tool("wait", timeout=timeout)


in_finalizers = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@in_finalizers
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, *(pytest.param(each, marks=pytest.mark.again) for each in (SystemExit, Stop))]
)
def test_it_ends_wherever_it_is_interrupted(error: type[BaseException]) -> None:
    rng = random.Random(1)
    for _ in range(60):
        with contextlib.suppress(error), stopped_after(rng.uniform(0.001, 0.04), error):
            use(make_server())


@in_finalizers
def test_it_ends_whichever_call_is_interrupted() -> None:
    """Also one of the standard library: `Thread.start` that is interrupted may leave a thread that never starts."""
    server, call, is_struck = make_server(), 0, True
    while is_struck:
        call += 1
        with contextlib.suppress(KeyboardInterrupt), struck_after(call) as struck:
            add(server)
        is_struck = bool(struck)
        assert threads_left() == [], f"struck after {struck}"
        assert sys.exc_info() == (None, None, None), f"struck in a handler, after {struck}"
    assert call > 50


def add(server: Server) -> None:
    with Client(server) as client:
        client.call_tool("add", {"a": 1, "b": 2})


@contextlib.contextmanager
def struck_after(call: int) -> Iterator[list[str]]:
    """Raise `KeyboardInterrupt` in the main thread, once a portal starts, where Python looks for signals.

    That is where a function begins, and after the call of one that is written in C. Loops are left out.

    Args:
        call: The number of such places that are passed before.
    """
    struck, calls, started = list[str](), itertools.count(1), list[bool]()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is Portal.start.__code__:
            started.append(True)
        if event == "call" and frame.f_code is weakref.finalize.__call__.__code__:  # Python drops what strikes there
            started.clear()
        if started and event in ("call", "c_return") and next(calls) == call:
            struck.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
            raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield struck
    finally:
        sys.setprofile(before)


def threads_left() -> list[str]:
    """Return the threads of clients that don't end."""
    for each in [each for each in threading.enumerate() if each.name.startswith("Trio of")]:
        deadline = time.monotonic() + 10
        while each in threading.enumerate() and time.monotonic() < deadline:
            time.sleep(0.001)
    return [each.name for each in threading.enumerate() if each.name.startswith("Trio of")]


def test_it_ends_with_a_timeout_wherever_it_strikes() -> None:
    rng = random.Random(2)
    for _ in range(20):
        with pytest.raises(RequestTimeout):
            use(make_server(), timeout=rng.uniform(0.001, 0.02))


@in_finalizers
@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_it_ends_wherever_it_is_interrupted_over_each_transport(way: str) -> None:
    rng = random.Random(way)
    with served(way) as target:
        for _ in range(125):
            with contextlib.suppress(KeyboardInterrupt), stopped_after(rng.uniform(0.001, 0.5), KeyboardInterrupt):
                use(target)


def test_ctrl_c_cancels_the_call_and_tells_the_server() -> None:
    cancelled: list[Any] = []
    server = make_server()

    @server.tool
    async def last() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.append("told")
            raise

    with Client(server) as client:
        with pytest.raises(KeyboardInterrupt), stopped_after(0.1, KeyboardInterrupt):
            client.call_tool("last")
        assert client.call_tool("add", {"a": 1, "b": 2}).data == 3
    assert cancelled == ["told"]


@pytest.mark.parametrize(("grace", "again"), [(0.1, 3), (60, 0.1)])
def test_a_call_that_does_not_end_is_left_after_the_grace_or_a_second_ctrl_c(grace: float, again: float) -> None:
    """The program goes on; only the end of the block waits for it."""

    async def stubborn() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        over.set()

    portal, over = Portal("thing", grace), threading.Event()
    portal.start(contextlib.nullcontext())
    with pytest.raises(KeyboardInterrupt), stopped_after(0.05, KeyboardInterrupt, again=again):
        portal.call(stubborn)
    assert not over.is_set()
    portal.stop()
    assert over.is_set()


def test_a_process_ends_with_the_block() -> None:
    with Client(stdio()) as client:
        client.ping()
        assert left_behind()
