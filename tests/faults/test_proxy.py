"""`FaultProxy`: what a script makes of the bytes of a connection, over real sockets."""

from __future__ import annotations

import contextlib
import itertools
import math
import socket
import sys
from collections.abc import AsyncIterator
from functools import partial

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from trio.testing import MockClock

from tests.effort import examples
from tests.injection import cancel_everywhere
from tests.tables import by_outcome
from tests.transports.support import open_descriptors
from tests.waiting import eventually
from trio_mcp import Client, Server, TransportError
from trio_mcp._nursery import background_nursery, start
from trio_mcp.errors import LocalProtocolError
from trio_mcp.testing import (
    Await,
    Delay,
    Drop,
    FaultProxy,
    Faults,
    Pass,
    Reset,
    Split,
    Stall,
    Step,
    Tear,
    fault_scripts,
    random_faults,
)

DEADLINE = 30
DATA = bytes(range(250)) * 40


@attrs.define(eq=False)
class Echo:
    """A server that sends back what it gets, and then the end.

    Attributes:
        url: The URL of its port.
        ends: How each connection has ended for it.
    """

    url: str = ""
    ends: list[str] = attrs.field(factory=list)

    async def serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            try:
                while data := await stream.receive_some():
                    await stream.send_all(data)
            except trio.BrokenResourceError:
                self.ends.append("reset")
            else:
                self.ends.append("end")


@contextlib.asynccontextmanager
async def echoing(
    *faults: Faults, path: str | None = None, deadline: float = DEADLINE
) -> AsyncIterator[tuple[FaultProxy, Echo]]:
    """Yield a proxy with faults and the server behind it, over TCP or a Unix socket."""
    echo = Echo()
    with trio.socket.socket(socket.AF_INET if path is None else socket.AF_UNIX) as listening:
        await listening.bind(("127.0.0.1", 0) if path is None else path)
        listening.listen()
        url = f"unix:{path}" if path else f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        with trio.fail_after(deadline):
            async with background_nursery() as nursery, FaultProxy(url, faults) as proxy:
                nursery.start_soon(trio.serve_listeners, echo.serve, [trio.SocketListener(listening)])
                yield proxy, echo


async def connect(proxy: FaultProxy) -> trio.SocketStream:
    if proxy.url.startswith("unix:"):
        return await trio.open_unix_socket(proxy.url.removeprefix("unix:"))
    return await trio.open_tcp_stream("127.0.0.1", proxy.port)


async def exchange(proxy: FaultProxy) -> tuple[bytes, str]:
    """Send data and the end; return what comes back, and how that ends."""
    came = b""
    async with await connect(proxy) as stream, trio.open_nursery() as nursery:

        async def send() -> None:
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(DATA)
                await stream.send_eof()

        nursery.start_soon(send)
        try:
            while data := await stream.receive_some():
                came += data
        except trio.BrokenResourceError:
            return came, "reset"
    return came, "end"


WHOLE = len(DATA)
SCRIPTS = {
    (WHOLE, "end"): [
        [],
        [Split(1, 100), Pass(10), Split(300)],
        [Delay(0.001)],
        [Pass(100), Stall(0.01)],
        [Pass(seconds=0.01), Await(), Pass(50)],
        [Pass(WHOLE + 1), Reset()],
    ],
    (0, "end"): [[Tear()], [Await(), Tear()]],
    (0, "reset"): [[Reset()], [Await(), Reset()]],
    (100, "end"): [[Pass(100), Tear()], [Split(7, 100), Tear()]],
    (100, "reset"): [[Pass(99), Pass(1), Reset()]],
}


@by_outcome("script", "outcome", SCRIPTS)
async def test_a_script_decides_what_is_received(script: list[Step], outcome: tuple[int, str]) -> None:
    async with echoing(Faults(received=script)) as (proxy, echo):
        came, end = await exchange(proxy)
        assert (came, end) == (DATA[: outcome[0]], outcome[1])
        await eventually(lambda: proxy.statistics().live == 0)
        assert proxy.statistics().received == len(came)
        if outcome[0] == WHOLE:
            assert echo.ends == ["end"]


@by_outcome("script", "outcome", SCRIPTS)
async def test_a_script_decides_what_is_sent(script: list[Step], outcome: tuple[int, str]) -> None:
    """What the server has got it sends back, but a connection that is torn or reset is so in both directions."""
    async with echoing(Faults(sent=script)) as (proxy, echo):
        came, end = await exchange(proxy)
        assert DATA[: outcome[0]].startswith(came)
        assert end == outcome[1]
        if outcome[0] == WHOLE:
            assert came == DATA
        await eventually(lambda: proxy.statistics().live == 0 and echo.ends)
        assert echo.ends == [outcome[1]]
        assert proxy.statistics().sent == outcome[0]


@pytest.fixture
def patient_clock() -> MockClock:
    """A clock that jumps when nothing happens, after a moment for data on its way through the kernel."""
    return MockClock(autojump_threshold=0.1)


async def test_pieces_arrive_as_they_were_split(patient_clock: MockClock) -> None:
    """With a pause between them the system does not join them."""
    script = [Split(1, 3, seconds=1), Split(5, seconds=1)]
    async with echoing(Faults(received=script), deadline=math.inf) as (proxy, _), await connect(proxy) as stream:
        await stream.send_all(b"123abcdefghij")
        assert [await stream.receive_some() for _ in range(5)] == [b"1", b"2", b"3", b"abcde", b"fghij"]


async def test_a_direction_can_be_stalled_by_itself() -> None:
    async with echoing() as (proxy, _), await connect(proxy) as stream:
        proxy.stall(sent=False)
        await stream.send_all(b"x")
        await eventually(lambda: proxy.statistics().sent == 1)
        with trio.move_on_after(0.05) as scope:
            await stream.receive_some()
        assert scope.cancelled_caught
        proxy.resume()
        assert await stream.receive_some() == b"x"


async def test_a_stalled_connection_holds_a_bounded_amount() -> None:
    async with echoing() as (proxy, _), await connect(proxy) as stream:
        proxy.stall(received=False)
        sent = 0
        with trio.move_on_after(0.2):
            while sent < 50_000_000:
                await stream.send_all(bytes(100_000))
                sent += 100_000
        assert sent < 50_000_000  # buffers of the system hold a few megabytes
        assert proxy.statistics().sent == 0


async def test_all_connections_can_be_ended_at_once() -> None:
    async with echoing() as (proxy, echo):
        for control, end in ((proxy.tear, "end"), (proxy.reset, "reset")):
            echo.ends.clear()
            streams = [await connect(proxy) for _ in range(3)]
            await eventually(lambda: proxy.statistics().live == 3)
            control()
            for stream in streams:
                with contextlib.nullcontext() if end == "end" else pytest.raises(trio.BrokenResourceError):
                    assert await stream.receive_some() == b""
                await stream.aclose()
            await eventually(lambda: len(echo.ends) == 3)
            assert set(echo.ends) == {end}
        assert await exchange(proxy) == (DATA, "end")
        assert proxy.statistics().connections == 7


async def test_connections_can_be_refused_and_accepted_again_at_the_same_place(tmp_path: object) -> None:
    for path in (None, f"{tmp_path}/socket"):
        async with echoing(path=path) as (proxy, _):
            url = proxy.url
            for _ in range(3):
                async with await connect(proxy) as stream:
                    await eventually(lambda: proxy.statistics().live)
                    proxy.refuse()
                    proxy.refuse()
                    with pytest.raises(OSError, match=r"refused|No such file|attempts to connect"):
                        await connect(proxy)
                    await stream.send_all(b"x")  # what is connected goes on
                    assert await stream.receive_some() == b"x"
                for _ in range(2):
                    proxy.accept()
                    proxy.refuse()
                await trio.testing.wait_all_tasks_blocked()
                proxy.accept()
                proxy.accept()
                assert await exchange(proxy) == (DATA, "end")
            assert proxy.url == url


async def test_a_target_that_refuses_looks_like_a_reset() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        async with FaultProxy(f"tcp://127.0.0.1:{bound.getsockname()[1]}") as proxy:
            assert await exchange(proxy) == (b"", "reset")


async def test_a_cancellation_anywhere_leaves_no_descriptor() -> None:
    async with echoing() as (outer, _):

        async def scenario() -> None:
            async with FaultProxy(outer.url, [Faults(received=[Pass(10), Tear()])]) as proxy:
                await exchange(proxy)
                await exchange(proxy)

        async def check() -> None:
            await eventually(lambda: outer.statistics().live == 0 and open_descriptors() == before)

        before = open_descriptors()
        assert await cancel_everywhere(scenario, check) > 20


async def test_over_a_unix_socket(tmp_path: object) -> None:
    async with echoing(Faults(received=[Pass(100), Tear()]), path=f"{tmp_path}/socket") as (proxy, _):
        assert await exchange(proxy) == (DATA[:100], "end")
        assert await exchange(proxy) == (DATA, "end")
        with pytest.raises(LocalProtocolError, match="no port"):
            _ = proxy.port


@pytest.mark.parametrize("target", ["localhost", "tcp://localhost", "/tmp/x", "tcp://:5"])
async def test_a_target_needs_a_host_and_a_port(target: str) -> None:
    with pytest.raises(ValueError, match="a URL with a host and a port, or unix:/path"):
        FaultProxy(target)


@pytest.mark.parametrize("fault", [Drop(), "Stall"])
async def test_a_script_that_can_not_be_played_is_refused(fault: Step) -> None:
    with pytest.raises((TypeError, ValueError), match=r"can't be applied to a wire|a script consists of steps"):
        async with echoing(Faults(sent=[fault])) as (proxy, _), await connect(proxy):
            await trio.sleep(DEADLINE)


async def test_a_client_calls_through_a_proxy() -> None:
    server = Server("s", version="1")

    @server.tool
    async def double(number: int) -> int:
        return 2 * number

    async with background_nursery() as nursery:
        url = await start(nursery, partial(server.serve_http, port=0))
        faults = itertools.repeat(Faults(sent=[Split(50)], received=[Split(20)]))
        heard: list[bytes] = []
        async with FaultProxy(url, faults, on_sent=heard.append) as proxy, Client(proxy.url) as client:
            assert proxy.url == url.replace(url.split(":")[2], f"{proxy.port}/mcp")
            assert (await client.call_tool("double", {"number": 2})).data == 4
            assert b'"number":2' in b"".join(heard)
            assert max(map(len, heard)) == 50
            proxy.refuse()
            proxy.reset()
            with pytest.raises(TransportError):
                await client.call_tool("double", {"number": 2})
            proxy.accept()
            assert (await client.call_tool("double", {"number": 2})).data == 4


# --- scripts from Hypothesis and from a seed ------------------------------------------------------------------------


@settings(max_examples=examples(200))
@given(faults=fault_scripts(most=12_000, longest=0.001))
def test_whatever_the_script_what_arrives_was_sent_and_in_order(faults: list[Faults]) -> None:
    async def main() -> None:
        async with echoing(*faults) as (proxy, _):
            for number in range(len(faults)):
                came, end = await exchange(proxy)
                assert DATA.startswith(came)
                steps = (*faults[number].sent, *faults[number].received)
                assert (came, end) == (DATA, "end") or any(isinstance(step, (Tear, Reset)) for step in steps)
            await eventually(lambda: proxy.statistics().live == 0)

    trio.run(main)


def test_the_same_seed_draws_the_same_faults_of_every_kind() -> None:
    drawn, again, others = (list(itertools.islice(random_faults(seed), 500)) for seed in (1, 1, 2))
    # Given as a set, whose order differs from one process to the next.
    one, other = (list(itertools.islice(random_faults(1, kinds), 50)) for kinds in ((Tear, Stall), (Stall, Tear)))
    assert one == other
    assert drawn == again != others
    assert 200 < drawn.count(Faults()) < 300
    kinds = {type(step) for faults in drawn for step in (*faults.sent, *faults.received)}
    assert kinds == {Pass, Await, Delay, Split, Stall, Tear, Reset}


def test_without_hypothesis_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'trio-mcp\[testing\]'"):
        fault_scripts()
