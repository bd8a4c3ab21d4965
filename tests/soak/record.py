"""Records of requests and their outcomes, and of effects, kept outside the processes that answered."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

# How a call may end. `wrong` and `hung` break a promise.
ANSWERED, FAILED, CANCELLED, TIMED_OUT, WRONG, HUNG = "answered", "failed", "cancelled", "timed out", "wrong", "hung"


class Record:
    """The calls, one line each; the broken promises; and counts for progress reports."""

    def __init__(self, out: Path) -> None:
        self._file = (out / "calls.jsonl").open("w")
        self._faults = (out / "violations.jsonl").open("w")
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.lives: Counter[tuple[str, str]] = Counter()
        self.violations: list[dict[str, Any]] = []
        self.late = 0.0

    def ended(self, lane: str, kind: str, call: str, outcome: str, seconds: float, note: str = "") -> None:
        entry = {"call": call, "lane": lane, "kind": kind, "outcome": outcome, "seconds": round(seconds, 4)}
        self._file.write(json.dumps({**entry, **({"note": note} if note else {})}) + "\n")
        self.outcomes[lane, outcome] += 1
        if note and outcome == FAILED:
            self.errors[lane, note[:110]] += 1
        if outcome in (WRONG, HUNG):
            self.violation(outcome, lane=lane, kind=kind, call=call, note=note)

    def violation(self, what: str, **details: Any) -> None:
        entry = {"time": time.time(), "what": what, **details}
        self.violations.append(entry)
        self._faults.write(json.dumps(entry) + "\n")
        self._faults.flush()

    def flush(self) -> None:
        self._file.flush()


# --- effects, kept outside the processes that caused them: a line for each, appended in one system call -------------


class Ledger:
    """Appends lines to a file that several processes share; a process that is killed has written a line or not."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, call: str, what: str) -> None:
        os.write(self._file, f"{call} {what}\n".encode())


def effects(path: Path) -> dict[str, Counter[str]]:
    """Count how often each call occurs, for each kind of line."""
    found: dict[str, Counter[str]] = {}
    with path.open() as lines:
        for line in lines:
            call, _, what = line.rstrip("\n").partition(" ")
            found.setdefault(what, Counter())[call] += 1
    return found
