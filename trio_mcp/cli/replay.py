"""``trio-mcp replay``: send a recorded client's messages again, and compare the responses with the recorded ones."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from trio_mcp.cli.check import needs_kit, runnable
from trio_mcp.cli.targets import single_target
from trio_mcp.cli.text import clean_line, dumps

if TYPE_CHECKING:
    # At run time, this module is imported only where it is used, because it needs an extra.
    from trio_mcp.conformance.replay import Replayed

__all__ = ["run"]

MOST_EVENTS = 30
"""How many events are shown at most for a broken rule; the last is the one that breaks it (arbitrary)."""


def run(options: argparse.Namespace) -> int:
    """Replay the file; return 1 if a response differs from the recorded one, or a rule is broken."""
    needs_kit()
    from trio_mcp.conformance.plans.plan_files import read_plan_file
    from trio_mcp.conformance.replay import replay_plan, replay_transcript
    from trio_mcp.conformance.transcript.files import kind_of_file, read_transcript
    from trio_mcp.conformance.wires.targets import open_wire_for

    target = single_target(options, "a replay")
    deadline = 10.0 if options.timeout is None else options.timeout

    async def replay() -> Replayed:
        open_wire = open_wire_for(target)
        if is_plan:
            return await replay_plan(open_wire, read_plan_file(options.file), deadline=deadline)
        return await replay_transcript(open_wire, read_transcript(options.file), deadline=deadline)

    with runnable():
        is_plan = kind_of_file(options.file) == "plan"
        found = trio.run(replay)
    if options.json:
        print(dumps(_as_json(found)))
    else:
        print("\n".join(_lines(found, is_plan)))
    return found.status


def _lines(found: Replayed, is_plan: bool) -> Iterator[str]:
    from trio_mcp.conformance.report.table import event_line
    from trio_mcp.conformance.report.view import folded, shown
    from trio_mcp.conformance.rules.catalogue import RULES

    for line in found.differences:
        yield f"different: {clean_line(line)}"
    for id_, verdict in found.broken.items():
        yield f"broken: {id_} ({RULES[id_].level}): {clean_line(verdict.problem or '')}"
        at = next((place for place, each in enumerate(found.events) if each is verdict.event), len(found.events) - 1)
        prologue, rest = shown(found.events[: at + 1], at)
        for each in folded(rest or prologue)[-MOST_EVENTS:]:
            yield event_line(each)
    if found.masked:
        yield f"note: {found.masked} of the client's messages had a mask in place of a secret"
    if not found.status:
        yield "the rule is not broken any more" if is_plan else "the same as before, by the rules"


def _as_json(found: Replayed) -> dict[str, object]:
    from trio_mcp.conformance.transcript.files import as_line
    from trio_mcp.conformance.transcript.masking import Masker

    masker = Masker()
    return {
        "status": found.status,
        "differences": list(found.differences),
        "broken": {id_: verdict.problem for id_, verdict in found.broken.items()},
        "transcript": [as_line(masker.event(event)) for event in found.events],
    }
