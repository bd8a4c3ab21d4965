"""Serve a mutant, or the healthy twin, over standard input and output: ``python -m tests.kit.mutants [name]``."""

from __future__ import annotations

import sys

import trio

from tests.kit.mutants.server import Twin, serve_lines
from tests.kit.mutants.table import MUTANTS


async def main(name: str) -> None:
    twin = MUTANTS[name].twin() if name else Twin()
    await serve_lines(twin, trio.StapledStream(trio.lowlevel.FdStream(1), trio.lowlevel.FdStream(0)))


trio.run(main, " ".join(sys.argv[1:]))
