"""Reads and writes plan files, which `trio-mcp check` makes for failures, and `trio-mcp replay` runs again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from trio_mcp.conformance.outcomes import CheckReport, Outcome
from trio_mcp.conformance.steps import Plan, plan_from_json, plan_to_json
from trio_mcp.conformance.transcript.files import FORMAT, TranscriptError, read_object
from trio_mcp.types.versions import REVISIONS

__all__ = ["PlanFile", "plan_file_name", "read_plan_file", "write_plan_files"]

VERSION = 1


@attrs.frozen
class PlanFile:
    """A plan, and what it showed.

    Attributes:
        plan: The steps.
        revision: The revision to speak.
        rule: The id of the rule that was broken.
        problem: How the rule was broken.
        about: The other facts in the file: ``seed``, ``example`` and ``target``.
    """

    plan: Plan
    revision: str
    rule: str
    problem: str = ""
    about: Mapping[str, Any] = attrs.Factory(dict)


def plan_file_name(rule: str) -> str:
    """Return the name of the plan file for a rule's failure."""
    return f"{rule}.replay.json"


def write_plan_files(report: CheckReport, folder: str | Path) -> list[Path]:
    """Write a plan file for each failure that can be replayed, and return the paths of the files."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    written = []
    for outcome in report.broken:
        if (value := _as_json(outcome, report)) is not None:
            written.append(Path(folder) / plan_file_name(outcome.rule.id))
            written[-1].write_text(json.dumps(value, indent=2) + "\n")
    return written


def _as_json(outcome: Outcome, report: CheckReport) -> dict[str, Any] | None:
    failure = outcome.failure
    # For a client's failure, the plan is the script of a server, and there is no command that replays it.
    if failure is None or failure.steps is None:
        return None
    return {
        FORMAT: "plan",
        "version": VERSION,
        "rule": outcome.rule.id,
        "problem": failure.problem,
        "revision": failure.revision,
        "target": report.target,
        "seed": report.seed,
        "example": failure.example,
        "plan": plan_to_json(failure.steps),
    }


def read_plan_file(path: str | Path) -> PlanFile:
    """Read a plan file.

    Raises:
        TranscriptError: If the file can't be read, or is not a plan file.
    """
    value = dict(read_object(path))
    # Reading a plan file does not check whether the rule still exists: the file is valid either way, and only a replay
    # needs the rule.
    if value.pop(FORMAT, None) != "plan" or value.pop("version", None) != VERSION:
        raise TranscriptError(f"{path}: not a plan file, or written by an incompatible version of trio-mcp")
    if value.get("revision") not in REVISIONS or not isinstance(value.get("rule"), str):
        raise TranscriptError(f"{path}: the file must name a rule, and one of the revisions {', '.join(REVISIONS)}")
    try:
        # Each known part is removed from `value`, so that only the other facts in the file are left at the end.
        plan = plan_from_json(value.pop("plan", None))
    except ValueError as exc:
        raise TranscriptError(f"{path}: {exc}") from None
    return PlanFile(plan, value.pop("revision"), value.pop("rule"), str(value.pop("problem", "")), value)
