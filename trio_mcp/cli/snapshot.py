"""``trio-mcp snapshot`` and ``trio-mcp check --snapshot``: keep what a server offers, and say what has changed."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import trio

from trio_mcp.cli.exits import FAILED, OK, Exit
from trio_mcp.cli.messages import paint
from trio_mcp.cli.settings import FOR_RULES, is_given
from trio_mcp.cli.targets import connected
from trio_mcp.cli.terminal import ProgressBar
from trio_mcp.cli.text import clean, dumps
from trio_mcp.client.surface.drift import DriftReport, compare_snapshots
from trio_mcp.client.surface.snapshot import Snapshot, SnapshotError
from trio_mcp.errors import TrioMcpError

__all__ = ["compare", "run"]

HEADINGS = {"breaks": "breaks callers", "reads": "reads differently", "harmless": "harmless"}


def run(options: argparse.Namespace) -> int:
    """Print a snapshot of the server."""
    print(trio.run(_taken, options).text(), end="")
    return OK


def compare(options: argparse.Namespace) -> int:
    """Compare the server with a snapshot; return 1 if something breaks callers or reads differently."""
    for name in FOR_RULES:
        if is_given(options, name):
            raise Exit(f"--{name.replace('_', '-')} is for checks by rules, not with --snapshot")
    revisions = options.revisions or ["auto"]
    if len(revisions) > 1:
        raise Exit("a snapshot is of one revision: give --revision once")
    try:
        before = Snapshot.read(options.snapshot)
        more: dict[str, Any] = {"mode": revisions[0], "root": [], "log_level": None, "verbose": False}
        after = trio.run(_taken, argparse.Namespace(**vars(options) | more))
        try:
            found = compare_snapshots(before, after)
        except SnapshotError as exc:
            advice = f"choose the revision with --revision {before.revision}, or make a new snapshot"
            raise Exit(f"{clean(options.snapshot)}: {exc}; {advice}", hint=False) from None
    except TrioMcpError as exc:
        # As with any other check: what could not be compared was not checked.
        raise Exit(str(exc), hint=False) from None
    status = FAILED if found.breaking or found.reading else OK
    if options.json:
        changes = [
            {"effect": each.effect, "change": each.change, "what": each.what, "text": each.text}
            for each in found.changes
        ]
        print(dumps({"status": status, "changes": changes}))
    else:
        print(_lines(found, options.snapshot))
    return status


async def _taken(options: argparse.Namespace) -> Snapshot:
    """Connect as a client that can be asked anything, since some servers offer more to it."""

    async def refuse(*_: object) -> None:
        # No list needs an answer, and a snapshot must not depend on one.
        raise TrioMcpError("the client answers nothing while it takes a snapshot")

    answers = {"elicitation": refuse, "sampling": refuse, "roots": options.root or []}
    async with connected(options, ProgressBar(sys.stderr).clear, answers=answers) as client:
        return await Snapshot.of(client)


def _lines(found: DriftReport, path: str) -> str:
    if not found.changes:
        return f"the server offers the same as in {clean(path)}"
    lines = []
    for heading, changes in zip(HEADINGS.values(), (found.breaking, found.reading, found.harmless), strict=True):
        if changes:
            lines += [paint(heading, "heading"), *(f"  {each}" for each in changes)]
    return "\n".join(lines)
