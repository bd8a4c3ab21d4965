"""Where mutants are met: in memory, over lines and over HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import trio
import trio.testing

from tests.kit.mutants.model import Mutant
from tests.kit.mutants.server import Twin, serve_lines
from tests.kit.mutants.web import Web
from trio_mcp import HttpServerParameters
from trio_mcp._nursery import background_nursery
from trio_mcp.testing.check.wires.http import http_wire
from trio_mcp.testing.check.wires.lines import LinesWire, stream_wire
from trio_mcp.testing.check.wires.targets import WireTarget
from trio_mcp.testing.transcript.tape import Tape


@contextlib.asynccontextmanager
async def in_memory(twin: Twin, over: str, name: str = "twin") -> AsyncIterator[WireTarget]:
    """Serve a twin for as long as the block runs."""
    async with background_nursery() as nursery:
        web = (twin.web or Web)(twin, nursery)

        async def connect() -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            ours, theirs = trio.testing.memory_stream_pair()
            if over == "http":
                nursery.start_soon(web.serve, theirs)
            else:
                nursery.start_soon(serve_lines, twin, theirs)
            return ours

        @contextlib.asynccontextmanager
        async def lines(tape: Tape, number: int, revision: str) -> AsyncIterator[LinesWire]:
            async with stream_wire(tape, number, "memory", await connect()) as wire:
                yield wire

        http = http_wire(HttpServerParameters("http://127.0.0.1/mcp"), connect=connect)
        yield WireTarget(name, http if over == "http" else lines)


def of(mutant: Mutant) -> contextlib.AbstractAsyncContextManager[WireTarget]:
    """Serve a mutant for as long as the block runs."""
    return in_memory(mutant.twin(), mutant.over, mutant.name)
