"""Renders a report as SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/), for code scanning."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from trio_mcp._version import __version__
from trio_mcp.conformance.outcomes import CheckReport, Outcome
from trio_mcp.conformance.report.view import clean, problem_of, reached, shorten, transcript_of
from trio_mcp.conformance.rules.model import LEVELS as LEVELS_BY_WEIGHT, Rule

__all__ = ["as_sarif", "sarif"]

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: Final = {"MUST": "error", "SHOULD": "warning", "EXPECTED": "note"}

MAX_STEPS: Final = 100
"""The maximum number of events of a failure that are included: an arbitrary choice, as a shrunk failure has only a
few."""


def sarif(report: CheckReport) -> str:
    """Return a report as SARIF text."""
    return json.dumps(as_sarif(report), indent=2) + "\n"


def as_sarif(report: CheckReport) -> dict[str, Any]:
    """Return a report as a SARIF log, in the form of a JSON object."""
    rules = [outcome.rule for outcome in report.outcomes]
    places = {rule.id: number for number, rule in enumerate(rules)}
    # A tool that was not reached breaks no rule, so it is told beside the results.
    notices = [
        {"level": "warning", "message": {"text": f"{each.label}: {each.why}"}} for each in reached(report) if each.why
    ]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {"name": "trio-mcp", "version": __version__, "rules": [_rule(each) for each in rules]}
                },
                # `executionSuccessful` says whether the tool did its work, whatever it found (SARIF,
                # `executionSuccessful`). An undecided result means that it could not do its work.
                "invocations": [
                    {
                        "executionSuccessful": report.status != 2,
                        "exitCode": report.status,
                        **({"toolExecutionNotifications": notices} if notices else {}),
                    }
                ],
                "results": [_result(found, places[found[0].rule.id], report) for found in report.findings],
                "properties": {
                    "seed": report.seed,
                    "examples": report.examples,
                    "requests": report.requests,
                    "untested": report.untested,
                    "reached": [
                        {
                            "of": each.label,
                            "called": each.item.called,
                            "accepted": each.item.accepted,
                            "refused": each.item.refused,
                            "keywordsNeverReached": each.idle,
                        }
                        for each in reached(report)
                    ],
                },
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    # A rule that no sentence states has its reason, and no page to link to.
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.sentence},
        **({"fullDescription": {"text": f"{rule.sentence} {rule.reason}"}} if rule.reason else {}),
        **({"helpUri": rule.link()} if rule.section else {}),
        "defaultConfiguration": {"level": LEVELS[rule.level]},
        "properties": {
            "tags": ["mcp", rule.who, rule.level],
            "revisions": list(rule.revisions),
            "section": rule.section,
        },
    }


def _result(finding: Sequence[Outcome], place: int, report: CheckReport) -> dict[str, Any]:
    outcome, *others = finding
    rule = outcome.rule
    level = min((each.rule.level for each in finding), key=LEVELS_BY_WEIGHT.index)
    also = "".join(f" The same breaks {each.rule.id}: {problem_of(each)}." for each in others)
    found: dict[str, Any] = {
        "ruleId": rule.id,
        "ruleIndex": place,
        "level": LEVELS["SHOULD" if outcome.known and level == "MUST" else level],
        "message": {"text": f"{rule.sentence} {problem_of(outcome)}{also}"},
        "locations": [_location(report)],
        # The text of the problem is left out because it contains ids and values of one run: with it, each run would
        # close the last run's alert and open another.
        "partialFingerprints": {"target/rule": f"{clean(report.target)} {rule.id}"},
    }
    if outcome.known:
        # The kind is `external` because the reason is in the baseline, not in the source code (SARIF, `suppression`).
        found["suppressions"] = [{"kind": "external", "justification": "known from the baseline"}]
    if outcome.failure is not None:
        prologue, rest = transcript_of(outcome.failure)
        steps = [
            {
                "location": {
                    **_location(report),
                    "message": {"text": shorten(f"{_ARROWS[each.event.sender]} {each.label} {each.detail}", 400)},
                }
            }
            for each in (prologue + rest if any(each.is_bad for each in prologue) else rest)[:MAX_STEPS]
        ]
        # A thread flow must have at least one location (SARIF, `threadFlow`).
        if steps:
            found["codeFlows"] = [{"threadFlows": [{"locations": steps}]}]
        found["properties"] = {
            "seen": outcome.failure.seen,
            "of": outcome.failure.of,
            "revision": outcome.failure.revision,
            "command": clean(outcome.failure.command),
            "also": [each.rule.id for each in others],
        }
    return found


_ARROWS: Final = {"client": "->", "server": "<-", "kit": "--"}


def _location(report: CheckReport) -> dict[str, Any]:
    # Code scanning requires a file for each result; the target's name is the closest thing to one.
    name = clean(report.target)
    return {
        "physicalLocation": {"artifactLocation": {"uri": quote(name, safe="/:.-_~")}, "region": {"startLine": 1}},
        "logicalLocations": [{"fullyQualifiedName": name, "kind": "module"}],
    }
