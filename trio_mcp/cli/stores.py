"""``trio-mcp stores``: say whether a file of stores is fit for use, and what lies there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import attrs

from trio_mcp.cli.exits import FAILED, OK, Exit
from trio_mcp.cli.text import clean_line, dumps
from trio_mcp.stores.contract import StoreError
from trio_mcp.stores.inspection import Inspection, inspect_file

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Inspect the file, and print what was found."""
    if not Path(options.place).is_file():
        raise Exit(f"there is no file {options.place!r}: give the path that the server has as stores=")
    try:
        found = inspect_file(options.place)
    except (StoreError, OSError) as exc:
        raise Exit(f"{exc}", FAILED) from None
    if options.json:
        sys.stdout.write(dumps(attrs.asdict(found)) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(options.place, found)) + "\n")
    return OK


def _lines(place: str, found: Inspection) -> list[str]:
    tasks = ", ".join(f"{count} {status}" for status, count in found.tasks.items()) or "none"
    held = f" ({found.running} held by a process)" if found.running else ""
    counts = found.counts
    return [
        f"{clean_line(place)} is fit for use (layout {found.layout})",
        f"server:   {clean_line(found.server) if found.server is not None else 'none yet'}",
        f"tasks:    {tasks}{held}; {_size(found.journal)} of journals",
        f"sessions: {counts['sessions']}, {counts['streams']} open streams, {counts['members']} members,"
        f" {counts['events']} events",
        f"users:    {counts['states']} states",
        f"changes:  {counts['topics']} topics in the last hour",
        f"counters: {counts['buckets']} token buckets, {counts['remembered']} remembered keys",
        f"size:     {_size(found.size)}, and {_size(found.log)} of log",
        f"lock:     free after {1000 * found.longest_wait:.1f} ms at most, in a second",
    ]


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    return f"{count / 1024:.1f} KiB" if count < 1024**2 else f"{count / 1024**2:.1f} MiB"
