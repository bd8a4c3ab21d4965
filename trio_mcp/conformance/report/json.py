"""Renders a report as JSON, for programs."""

from __future__ import annotations

import json
from typing import Any

import attrs

from trio_mcp.conformance.outcomes import CheckReport, Failure, Outcome, Reached
from trio_mcp.conformance.report.view import counted, coverage, headline, problem_of, reached
from trio_mcp.conformance.transcript.files import as_line
from trio_mcp.conformance.transcript.masking import Masker

__all__ = ["as_json", "json_text"]

VERSION = 1
"""The version of this JSON format; it is raised when a member changes its meaning."""


def json_text(report: CheckReport) -> str:
    """Return a report as JSON text."""
    return json.dumps(as_json(report), indent=2) + "\n"


def as_json(report: CheckReport) -> dict[str, Any]:
    """Return a report as a JSON object."""
    return {
        "version": VERSION,
        "status": report.status,
        "headline": headline(report),
        "target": report.target,
        "side": report.side,
        "transport": report.transport,
        "info": report.info,
        "revisions": list(report.revisions),
        "seed": report.seed,
        "examples": report.examples,
        "wanted": report.wanted,
        "requests": report.requests,
        "seconds": round(report.seconds, 3),
        "generating": round(report.generating, 3),
        "ended": report.ended,
        "undecided": list(report.undecided),
        "untested": report.untested,
        "counts": counted(report.outcomes),
        "findings": [
            {
                "rules": [outcome.rule.id for outcome in found],
                "problem": problem_of(found[0]),
                "command": found[0].failure.command if found[0].failure else "",
            }
            for found in report.findings
        ],
        "coverage": [attrs.asdict(page) for page in coverage(report)],
        "reached": [
            attrs.asdict(each.item) | {"keywords": [*map(_keyword, each.keywords)]} for each in reached(report)
        ],
        "rules": [_outcome(outcome) for outcome in report.outcomes],
        "notes": list(report.notes),
        "advice": list(report.advice),
        "figures": dict(report.figures),
    }


def _keyword(found: Reached) -> dict[str, Any]:
    return {name: value for name, value in attrs.asdict(found).items() if name not in ("kind", "name")}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    rule = outcome.rule
    found: dict[str, Any] = {
        "id": rule.id,
        "level": rule.level,
        "who": rule.who,
        "sentence": rule.sentence,
        "section": rule.section,
        # The link leads to the revision in which the rule was broken, because the newest revision may word the rule
        # differently, or have it on another page.
        "link": rule.link(outcome.failure.revision if outcome.failure else None),
        "status": outcome.status,
        "occasions": outcome.occasions,
    }
    if rule.reason:
        found["why"] = rule.reason
    if outcome.reason:
        found["reason"] = outcome.reason
    if outcome.failure is not None:
        found["failure"] = {"problem": problem_of(outcome), **_failure(outcome.failure), "known": outcome.known}
    return found


def _failure(failure: Failure) -> dict[str, Any]:
    # Each failure has its own masker, so that the names that replace its session ids do not depend on which other rules
    # are broken.
    masker = Masker()
    return {
        "revision": failure.revision,
        "seen": failure.seen,
        "of": failure.of,
        "rare": failure.is_rare,
        "example": failure.example,
        "messages": failure.messages,
        "command": failure.command,
        "at": failure.at,
        "transcript": [as_line(masker.event(event)) for event in failure.transcript],
    }
