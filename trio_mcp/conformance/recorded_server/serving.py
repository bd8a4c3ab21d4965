"""Serves a recording: to a `Client` in this process, over the standard streams, and over Streamable HTTP."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.conformance.recorded_server.book import Book, read_book
from trio_mcp.conformance.recorded_server.session import Play, RecordedSession, Send
from trio_mcp.conformance.wires.notes import LineSplitter, TooMuch, to_text
from trio_mcp.jsonrpc.codec import encode, parse
from trio_mcp.jsonrpc.messages import SessionMessage
from trio_mcp.lines import CHUNK
from trio_mcp.link import Link
from trio_mcp.stdio.standard_streams import private_streams

__all__ = ["RecordedServer", "recorded", "serve_stdio"]

GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)


def recorded(path: str | os.PathLike[str]) -> RecordedServer:
    """Return a server that answers what was answered in a recording: ``Client(recorded("session.jsonl"))``.

    Requests are matched by their method and arguments. The same request gets the recorded responses in order, and the
    last one from then on. What was never recorded is refused with an error that shows the nearest recorded request. The
    server asks what was asked, and goes on if the client's answer is the recorded one; any answer of a model, and any
    folders, will do.

    Args:
        path: A transcript, as ``trio-mcp record`` writes it.

    Returns:
        The server, which is a target for any number of clients. It has no network, keys, or state.

    Raises:
        TranscriptError: If the file can't be read, is not a transcript, or answers nothing.
    """
    return RecordedServer(path)


class RecordedServer:
    """A server made of a recording; see `recorded`.

    Args:
        path: The transcript.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._book = read_book(Path(path))
        # A client names its target by `__qualname__`.
        self.__qualname__ = Path(path).name

    async def serve(self, link: Link, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve a client over a link until the client leaves. A cancellation ends it at once."""

        async def send(message: Any) -> None:
            await link.write.send(SessionMessage(parse(message)))

        async with link.write:
            serving = _Serving(self._book, send)
            async with background_nursery() as nursery:
                task_status.started()
                async for item in link.read:
                    # An item that is not a message gets no answer: the client's own side has made it.
                    with contextlib.suppress(ValueError, AttributeError, TypeError):
                        serving.take(nursery, json.loads(encode(item.message)))
            await trio.lowlevel.checkpoint()


class _Serving:
    """Takes messages from one client, and answers them in tasks."""

    def __init__(self, book: Book, send: Send) -> None:
        self._turn = trio.Lock()
        self._write = send
        self._session = RecordedSession(book, self._send)

    async def _send(self, message: Any) -> None:
        # Messages must not be mixed up, and stay in the order in which they are sent.
        async with self._turn:
            await self._write(message)

    def take(self, nursery: trio.Nursery, message: Any) -> None:
        """Take a message, or several that were sent as one."""
        for each in message if isinstance(message, list) else [message]:
            if (play := self._session.begin(each)) is not None:
                nursery.start_soon(self._play, play)

    async def _play(self, play: Play) -> None:
        with contextlib.suppress(*GONE):  # the client may leave at any time
            await self._session.play(play, self._send)


async def serve_stdio(book: Book) -> None:
    """Serve a client over this process's standard streams until the client closes them."""
    with private_streams() as (read, write):
        await serve_lines(book, read.receive_some, write.send_all)


async def serve_lines(
    book: Book,
    receive: Callable[[int], Awaitable[bytes | bytearray]],
    send_all: Callable[[bytes], Awaitable[object]],
) -> None:
    """Serve a client whose messages are lines, until it closes its side.

    Args:
        book: The recording.
        receive: Reads at most so many bytes.
        send_all: Writes bytes.
    """

    async def send(message: Any) -> None:
        await send_all(to_text(message) + b"\n")

    serving = _Serving(book, send)
    splitter = LineSplitter()
    async with background_nursery() as nursery:
        # A client that sends a line without an end is cut off.
        with contextlib.suppress(*GONE, TooMuch):
            while chunk := await receive(CHUNK):
                for line in splitter.feed(bytes(chunk)):
                    try:
                        message = json.loads(line)
                    except (ValueError, RecursionError):
                        fault = {"code": -32700, "message": "this is not JSON"}
                        await send({"jsonrpc": "2.0", "id": None, "error": fault})
                        continue
                    serving.take(nursery, message)
