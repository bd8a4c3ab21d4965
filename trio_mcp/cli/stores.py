"""``trio-mcp stores``: say whether a file or an engine is fit for stores, and what lies there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from trio_mcp.cli.exits import FAILED, OK, Exit
from trio_mcp.cli.text import clean_line, dumps
from trio_mcp.stores.contract import StoreError
from trio_mcp.stores.inspection import Inspection, inspect_file
from trio_mcp.stores.valkey_address import is_engine

if TYPE_CHECKING:
    from trio_mcp.stores.valkey_inspection import EngineInspection

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Inspect the file or the engine, and print what was found."""
    place = options.place
    found = _inspected_engine(place, options.prefix) if is_engine(place) else _inspected_file(place, options.prefix)
    if options.json:
        sys.stdout.write(dumps(attrs.asdict(found)) + "\n")
    else:
        lines = _lines(place, found) if isinstance(found, Inspection) else _lines_of_engine(found)
        sys.stdout.write("\n".join(lines) + "\n")
    return OK


def _inspected_file(place: str, prefix: str | None) -> Inspection:
    if prefix is not None:
        raise Exit("--prefix does not apply to a file: each server has a file of its own")
    if not Path(place).is_file():
        raise Exit(f"there is no file {place!r}: give the path that the server has as stores=")
    try:
        return inspect_file(place)
    except (StoreError, OSError) as exc:
        raise Exit(f"{exc}", FAILED) from None


def _inspected_engine(url: str, prefix: str | None) -> EngineInspection:
    if prefix is None:
        raise Exit("the URL of an engine needs --prefix NAME, which by default is the name of the server")
    from trio_mcp.stores.valkey_inspection import inspect_engine  # imported late: few servers have such stores

    try:
        return trio.run(inspect_engine, url, prefix)
    except (ImportError, ValueError) as exc:
        raise Exit(f"{exc}") from None
    except StoreError as exc:
        raise Exit(f"{exc}", FAILED) from None


def _lines(place: str, found: Inspection) -> list[str]:
    counts = found.counts
    return [
        f"{clean_line(place)} is fit for use (layout {found.layout})",
        *_common(found, f"; {_size(found.journal)} of journals"),
        f"sessions: {counts['sessions']}, {counts['streams']} open streams, {counts['members']} members,"
        f" {counts['events']} events",
        f"users:    {counts['states']} states",
        f"changes:  {counts['topics']} topics in the last hour",
        f"counters: {counts['buckets']} token buckets, {counts['remembered']} remembered keys",
        f"size:     {_size(found.size)}, and {_size(found.log)} of log",
        f"lock:     free after {1000 * found.longest_wait:.1f} ms at most, in a second",
    ]


def _lines_of_engine(found: EngineInspection) -> list[str]:
    limit = f" of {_size(found.limit)}" if found.limit else ", without a limit"
    return [
        f"{clean_line(found.place)} is fit for use, with the prefix {clean_line(found.prefix)} (layout {found.layout})",
        *_common(found),
        f"sessions: {found.sessions}, {found.streams} open streams, {found.members} members, {found.events} events",
        f"changes:  {found.topics} topics of late",
        f"engine:   {clean_line(found.engine)}{', a cluster' if found.cluster else ''},"
        f" {'with' if found.appends else 'without'} an append-only file; {_size(found.memory)}{limit}",
        f"trips:    {1000 * found.longest_trip:.1f} ms at most",
    ]


def _common(found: Inspection | EngineInspection, journals: str = "") -> list[str]:
    tasks = ", ".join(f"{count} {status}" for status, count in found.tasks.items()) or "none"
    held = f" ({found.running} held by a process)" if found.running else ""
    return [
        f"server:   {clean_line(found.server) if found.server is not None else 'none yet'}",
        f"tasks:    {tasks}{held}{journals}",
    ]


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    return f"{count / 1024:.1f} KiB" if count < 1024**2 else f"{count / 1024**2:.1f} MiB"
