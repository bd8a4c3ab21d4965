"""Records messages that are lines, to and from a child process or over TCP, TLS and Unix sockets.

Bytes are passed on as they arrive, whether they form lines or not, and each line in them is recorded. On a socket, the
client's first line is checked before anything is passed on.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from functools import partial

import attrs
import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.conformance.transcript.events import Sender
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.notes import LONGEST, LineSplitter, Notes, TooMuch
from trio_mcp.errors import TransportError
from trio_mcp.lines import CHUNK
from trio_mcp.sockets.addresses import Address
from trio_mcp.sockets.client import open_socket
from trio_mcp.sockets.stream_link import first_line
from trio_mcp.stdio.child_process import StderrCopier, start_process
from trio_mcp.stdio.parameters import StdioServerParameters
from trio_mcp.stdio.standard_streams import private_streams

__all__ = ["record_process", "record_socket"]

FIRST_LINE = 60.0
"""How long a client on a socket may take to send its first line, in seconds.

An arbitrary choice: longer than servers wait for the first line. The recorder connects to the server only after it.
"""

_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


async def record_process(parameters: StdioServerParameters, tape: Tape) -> None:
    """Stand in for a server over stdio: start it, and pass on the messages of both sides.

    Returns once the server has ended or closed its standard output.

    Raises:
        TransportError: If the process can't be started.
    """
    # The server's process gets this process's whole environment, because the client has started this process in its
    # place.
    child = await start_process(attrs.evolve(parameters, env={**os.environ, **parameters.env}))
    notes = Notes(tape, 0, "stdio")
    stderr = StderrCopier(child.stderr, "inherit")
    # The standard streams carry the messages, so nothing else may use them: a `print` would send one more line to the
    # client.
    with private_streams() as (read, write):
        try:
            async with background_nursery(partial(child.end, parameters.shutdown_grace)) as nursery:
                nursery.start_soon(stderr.read)
                nursery.start_soon(stderr.deliver)
                await _pass_on(notes, read, write, child.stdin, child.stdout)
        finally:
            # The close is recorded last, when the exit status is known, and even if this process is cancelled: without
            # it, rules would treat the connection as still open.
            notes.close("server", "the process ended", status=child.returncode)


async def record_socket(address: Address, listeners: list[trio.SocketListener], tape: Tape) -> None:
    """Forward connections on a local socket to a server on TCP, TLS or a Unix socket, and record them, until cancelled.

    A connection whose first line is not a JSON object is closed, as a server would close it: the line may come from a
    web page that makes HTTP requests.
    """
    numbers = itertools.count()

    async def serve(client: trio.SocketStream) -> None:
        number = next(numbers)
        try:
            deadline = trio.current_time() + FIRST_LINE
            start = await first_line(partial(client.receive_some, CHUNK), LONGEST, "the client", deadline)
            server = await open_socket(address)
        except trio.BrokenResourceError:
            return  # the client has left without sending anything
        except TransportError as exc:
            tape.note("mark", "kit", connection=number, what="unsent", reason=str(exc))
            return
        notes = Notes(tape, number, address.scheme)
        async with server:
            await _pass_on(notes, client, client, server, server, start)
        notes.close("server", "end")

    await trio.serve_listeners(serve, listeners)


async def _pass_on(
    notes: Notes,
    from_client: trio.abc.ReceiveStream,
    to_client: trio.abc.SendStream,
    to_server: trio.abc.SendStream,
    from_server: trio.abc.ReceiveStream,
    start: bytes | bytearray = b"",
) -> None:
    """Forward and record both directions until the server ends its side; ``start`` is what the client already sent."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(_pump, notes, "client", from_client, to_server, start))
        # The direction from the server runs in this task, because its end also ends the other direction: a client may
        # close its own side and still wait for responses.
        await _pump(notes, "server", from_server, to_client)
        nursery.cancel_scope.cancel("the server has ended")


async def _pump(
    notes: Notes,
    sender: Sender,
    source: trio.abc.ReceiveStream,
    sink: trio.abc.SendStream,
    start: bytes | bytearray = b"",
) -> None:
    lines: LineSplitter | None = LineSplitter()
    # If either side is gone, forwarding in this direction ends without an error. The other side notices by itself that
    # its peer is gone, as it would without a recorder.
    with contextlib.suppress(*_GONE):
        chunk = start or await source.receive_some(CHUNK)
        while chunk:
            # The chunk is recorded first: on the tape, the other side's reaction must not come before it.
            lines = _noted(notes, sender, lines, bytes(chunk))
            await sink.send_all(chunk)
            chunk = await source.receive_some(CHUNK)
    # A process that dies in the middle of a line leaves an incomplete one, which is recorded, too.
    if lines is not None and lines.rest:
        notes.text(sender, bytes(lines.rest))
    if sender == "server":
        return
    # The end of the client's input is passed on to the server, which may still respond.
    with contextlib.suppress(*_GONE):
        if isinstance(sink, trio.abc.HalfCloseableStream):
            await sink.send_eof()
        else:
            await sink.aclose()
    if notes.is_open:
        notes.mark("half closed")


def _noted(notes: Notes, sender: Sender, lines: LineSplitter | None, chunk: bytes) -> LineSplitter | None:
    """Record the lines in a chunk; return the splitter for the next chunk, or None once a line has been too long."""
    if lines is None:
        return None
    try:
        for line in lines.feed(chunk):
            notes.text(sender, line)
    except TooMuch as exc:
        notes.mark("unrecorded", by=sender, reason=str(exc))
        return None
    return lines
