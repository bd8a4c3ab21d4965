"""`stream_link` over any stream: both directions, the end from either side, and the loss."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.injection import cancel_everywhere
from tests.sockets.support import contexts
from trio_mcp import Client, Context, Server, TransportError
from trio_mcp.jsonrpc import Notification, TransportFailure
from trio_mcp.low_level import BaseSession, Link, SessionMessage, stream_link

Pair = tuple[trio.abc.Stream, trio.abc.Stream]


async def memory(folder: Path) -> Pair:
    return trio.testing.memory_stream_pair()


async def sockets(folder: Path) -> Pair:
    one, two = socket.socketpair()
    return (
        trio.SocketStream(trio.socket.from_stdlib_socket(one)),
        trio.SocketStream(trio.socket.from_stdlib_socket(two)),
    )


async def pipes(folder: Path) -> Pair:
    here_in, there = os.pipe()
    there_in, here = os.pipe()

    def both(reader: int, writer: int) -> trio.abc.Stream:
        return trio.StapledStream(trio.lowlevel.FdStream(writer), trio.lowlevel.FdStream(reader))

    return both(here_in, here), both(there_in, there)


async def tls(folder: Path) -> Pair:
    theirs, ours = contexts(folder)
    one, two = await sockets(folder)
    return (
        trio.SSLStream(one, ours, server_hostname="127.0.0.1"),
        trio.SSLStream(two, theirs, server_side=True),
    )


each_stream = pytest.mark.parametrize("make", [memory, sockets, pipes, tls])


@contextlib.asynccontextmanager
async def linked(make: Callable[[Path], Awaitable[Pair]], folder: Path) -> AsyncIterator[tuple[Link, Link]]:
    one, two = await make(folder)
    with trio.fail_after(10):
        async with stream_link(one) as here, stream_link(two) as there:
            yield here, there


def numbered(number: int, text: str = "") -> SessionMessage:
    return SessionMessage(Notification("m", {"n": number, "text": text}))


async def send(link: Link, count: int, text: str = "") -> None:
    for number in range(count):
        await link.write.send(numbered(number, text))


async def receive(link: Link, count: int | None = None) -> list[Any]:
    """Return what arrives, as a number if `numbered` has made it."""
    items: list[Any] = []
    async for item in link.read:
        message = item.message
        items.append(message.params["n"] if isinstance(message, Notification) and message.params else message)
        if len(items) == count:
            break
    return items


@each_stream
async def test_both_directions_at_once(make: Any, tmp_path: Path) -> None:
    async with linked(make, tmp_path) as ends, trio.open_nursery() as nursery:
        for end in ends:
            nursery.start_soon(send, end, 500, "x" * 1000)
        for end in ends:
            assert await receive(end, 500) == list(range(500))


@each_stream
async def test_what_was_sent_before_the_end_arrives(make: Any, tmp_path: Path) -> None:
    """By one side closing its half, then by leaving the block; what the other has sent before still arrives."""
    async with linked(make, tmp_path) as (here, there):
        await send(there, 3)
        await send(here, 20, "x" * 10_000)
        await here.write.aclose()
        assert await receive(there) == list(range(20))
        assert await receive(here, 3) == [0, 1, 2]
    one, two = await make(tmp_path)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery, stream_link(two) as there:

            async def leave() -> None:
                async with stream_link(one) as here:
                    await send(here, 20, "x" * 10_000)

            nursery.start_soon(leave)
            assert await receive(there) == list(range(20))


@pytest.mark.parametrize("make", [sockets, tls])
async def test_the_loss_is_reported_once_with_its_cause(make: Any, tmp_path: Path) -> None:
    """Everything before it counts; afterwards nothing can be sent, and nothing waits."""
    one, two = await make(tmp_path)
    with trio.fail_after(10):
        async with stream_link(one) as here:
            async with trio.open_nursery() as nursery:  # the handshake of TLS needs both
                nursery.start_soon(two.send_all, b'{"jsonrpc":"2.0","method":"m","params":{"n":7}}\n{"jsonrpc":')
                await here.write.send(numbered(1))
                assert await receive(here, 1) == [7]
            # A reset, by the end of a socket that holds unread bytes; or an end without the goodbye of TLS.
            await trio.aclose_forcefully(two if make is sockets else two.transport_stream)
            *_, lost = await receive(here)
            assert isinstance(lost, TransportFailure)
            assert isinstance(lost.error, TransportError)
            assert "the connection to the peer is lost: " in str(lost.error)
            with pytest.raises(trio.BrokenResourceError):
                await here.write.send(numbered(3))


@pytest.mark.parametrize("make", [memory, pipes])
async def test_a_peer_that_is_gone_is_noticed_by_writing(make: Any, tmp_path: Path) -> None:
    one, two = await make(tmp_path)
    with trio.fail_after(10):
        async with stream_link(one) as here:
            await trio.aclose_forcefully(two)
            assert await receive(here) == []
            with pytest.raises(trio.BrokenResourceError):
                await send(here, 1000)


async def test_a_client_and_a_server_over_a_stream(tmp_path: Path) -> None:
    """Handlers find the metadata, and the limit of a message costs that message alone."""
    server = Server("test")

    @server.tool
    async def who(ctx: Context, padding: str = "") -> str:
        return str(ctx.transport_metadata["user"])

    ours, theirs = trio.testing.memory_stream_pair()

    async def serve() -> None:
        async with stream_link(theirs, max_message_size=2000, metadata={"user": "ada"}) as link:
            await server.serve(link)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with Client(lambda: stream_link(ours)) as client:
            assert (await client.call_tool("who")).data == "ada"
            with pytest.raises(Exception, match="max_message_size=2000"):
                await client.call_tool("who", {"padding": "x" * 2000})
            assert (await client.call_tool("who")).data == "ada"


# --- the end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [sockets, tls])
async def test_a_peer_that_does_not_read_holds_up_the_end_for_a_second(
    make: Any, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    one, two = await make(tmp_path)
    async with trio.open_nursery() as nursery:
        if make is tls:
            nursery.start_soon(two.do_handshake)
        async with stream_link(one) as here:
            with trio.move_on_after(1):
                await send(here, 1000, "x" * 10_000)
            began = trio.current_time()
        assert trio.current_time() - began == pytest.approx(1.0, abs=0.1)
    await two.aclose()


@pytest.mark.parametrize(("pause", "whole"), [(0.4, True), (0.9, False)])
async def test_a_peer_that_reads_slowly_gets_the_last_messages_within_limits(
    pause: float, whole: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """64 KiB a second are fast enough, but after ten seconds the link ends in any case."""
    sending, theirs = trio.testing.memory_stream_one_way_pair()
    pump = sending.send_all_hook

    async def read_slowly() -> None:
        await trio.sleep(pause)
        assert pump is not None
        await pump()

    sending.send_all_hook = read_slowly
    silent = trio.testing.memory_stream_one_way_pair()[1]
    began = trio.current_time()
    async with stream_link(trio.StapledStream(sending, silent)) as here:
        await send(here, 1, "x" * 20 * 65_000)
    assert trio.current_time() - began < 10.1
    received = b""
    with trio.move_on_after(1):  # what was not pumped keeps the end from being seen
        async for chunk in theirs:
            received += chunk
    assert received.endswith(b"\n") is whole


async def test_cancelled_it_closes_at_once(autojump_clock: trio.testing.MockClock) -> None:
    one, two = socket.socketpair()
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(one))
    began = trio.current_time()
    with two, trio.CancelScope() as scope:
        async with stream_link(stream) as here:
            await send(here, 1, "x" * 6_000_000)
            scope.cancel()
            await trio.sleep_forever()
    assert stream.socket.fileno() == -1
    assert trio.current_time() == began


async def test_a_cancellation_at_any_step_leaves_the_stream_closed() -> None:
    streams: list[trio.SocketStream] = []

    async def scenario() -> None:
        one, two = socket.socketpair()
        ends = [trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in (one, two)]
        streams[:] = ends
        # Entered at once, so that only the links are to close them.
        links = [stream_link(end) for end in ends]
        async with contextlib.AsyncExitStack() as stack:
            for end in ends:
                stack.callback(end.socket.close)
            here, there = [await stack.enter_async_context(link) for link in links]
            await here.write.send(numbered(1))
            assert await receive(there, 1) == [1]

    async def check() -> None:
        assert [stream.socket.fileno() for stream in streams] == [-1, -1]

    assert await cancel_everywhere(scenario, check) > 5


async def test_an_exception_of_the_block_leaves_as_it_is() -> None:
    error = ValueError("x")
    with pytest.raises(ValueError, match="x") as caught:
        async with stream_link(trio.testing.memory_stream_pair()[0]):
            raise error
    assert caught.value is error


async def test_only_streams_are_taken() -> None:
    for wrong in ("tcp://127.0.0.1:1", socket.socket):
        with pytest.raises(TypeError, match=r"expected a trio\.abc\.Stream, got"):
            async with stream_link(wrong):  # type: ignore[arg-type]
                pass


class _Steps(trio.abc.Instrument):
    """Counts the steps of all tasks but the one that makes it."""

    def __init__(self) -> None:
        self.count = 0
        self._mine = trio.lowlevel.current_task()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is not self._mine


async def test_a_call_takes_two_steps() -> None:
    """The reader's task acts on a request, and the handler's task writes the response: no other task runs."""
    one, two = (trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in socket.socketpair())
    async with two, stream_link(one) as link, BaseSession(*link) as session:

        async def answer(params: Any, context: Any) -> dict[str, Any]:
            return {"n": params["n"]}

        session.add_request_handler("acme/x", answer)
        for n in range(3):
            await trio.testing.wait_all_tasks_blocked()
            trio.lowlevel.add_instrument(steps := _Steps())
            await two.send_all(b'{"jsonrpc":"2.0","id":%d,"method":"acme/x","params":{"n":%d}}\n' % (n, n))
            assert json.loads(await two.receive_some())["result"] == {"n": n}
            trio.lowlevel.remove_instrument(steps)
            assert steps.count == 2
