"""The streams over descriptors keep trio's contract for streams."""

from __future__ import annotations

import os
import pty
import tty
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from trio_mcp.stdio.lines import PipeReader
from trio_mcp.stdio.standard_streams import SharedStream, is_pollable

Ends = tuple[trio.abc.SendStream, trio.abc.ReceiveStream]


def pipe_reader(reader: int, writer: int) -> Ends:
    return trio.lowlevel.FdStream(writer), PipeReader(trio.lowlevel.FdStream(reader))


def shared(reader: int, writer: int) -> Ends:
    return SharedStream(writer), SharedStream(reader)


def makers(wrap: Callable[[int, int], Ends]) -> tuple[Callable[[], Awaitable[Ends]], Callable[[], Awaitable[Ends]]]:
    async def make() -> Ends:
        return wrap(*os.pipe())

    async def make_clogged() -> Ends:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writer, True)
        return wrap(reader, writer)

    return make, make_clogged


@pytest.mark.parametrize("wrap", [pipe_reader, shared])
async def test_trios_stream_checker_passes(wrap: Callable[[int, int], Ends]) -> None:
    """Checkpoints, closing while a task waits, conflicts, wrong arguments: `trio.testing.check_one_way_stream`."""
    make, make_clogged = makers(wrap)
    with trio.fail_after(30):
        await trio.testing.check_one_way_stream(make, make_clogged)


async def test_a_shared_stream_leaves_the_mode_of_its_descriptor_alone() -> None:
    """It works in either mode, as another process may have chosen it."""
    for blocking in (True, False):
        reader, writer = os.pipe()
        os.set_blocking(reader, blocking)
        os.set_blocking(writer, blocking)
        async with SharedStream(os.dup(writer)) as sending, SharedStream(os.dup(reader)) as receiving:
            received = bytearray()

            async def receive(stream: SharedStream = receiving, received: bytearray = received) -> None:
                while len(received) < 300_000:
                    received += await stream.receive_some()

            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(receive)
                    await sending.send_all(b"x" * 300_000)
            assert (os.get_blocking(reader), os.get_blocking(writer)) == (blocking, blocking)
        os.close(reader)
        os.close(writer)


async def test_what_waits_for_a_terminal_can_be_cancelled() -> None:
    """No thread is left behind to swallow the next line, which may be meant for another reader; nor a stuck write."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    try:
        with trio.fail_after(30):
            async with SharedStream(os.dup(theirs)) as stream:
                with trio.move_on_after(0.05):
                    await stream.receive_some()
            os.write(ours, b"for the next one")
            assert os.read(theirs, 100) == b"for the next one"
            async with SharedStream(os.dup(theirs)) as stream:
                with trio.move_on_after(0.2) as scope:
                    await stream.send_all(b"x" * 10_000_000)
        assert scope.cancelled_caught
    finally:
        os.close(theirs)
        os.close(ours)


def test_files_terminals_and_standard_error_are_not_made_non_blocking(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    ours, theirs = pty.openpty()
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    kept = os.dup(2)
    try:
        assert is_pollable(reader)
        assert is_pollable(writer)
        assert not is_pollable(theirs)
        assert not is_pollable(file)
        os.dup2(writer, 2)
        assert not is_pollable(writer)
    finally:
        os.dup2(kept, 2)
        for fd in (reader, writer, ours, theirs, file, kept):
            os.close(fd)
