"""A record of requests and their outcomes, kept outside the processes that answered."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

# How a call may end. `wrong` and `hung` break a promise.
ANSWERED, FAILED, CANCELLED, TIMED_OUT, WRONG, HUNG = "answered", "failed", "cancelled", "timed out", "wrong", "hung"


class Record:
    """The calls, one line each; the broken promises; and counts for progress reports."""

    def __init__(self, out: Path) -> None:
        self.path = out / "calls.jsonl"
        self._file = self.path.open("w")
        self._faults = (out / "violations.jsonl").open("w")
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.lives: Counter[tuple[str, str]] = Counter()
        self.violations: list[dict[str, Any]] = []
        self.answered_at: dict[str, float] = {}
        self.late = 0.0
        self.begun = 0

    def ended(self, lane: str, kind: str, call: str, outcome: str, seconds: float, note: str = "") -> None:
        entry = {"call": call, "lane": lane, "kind": kind, "outcome": outcome, "seconds": round(seconds, 4)}
        self._file.write(json.dumps({**entry, **({"note": note} if note else {})}) + "\n")
        self.outcomes[lane, outcome] += 1
        if outcome == ANSWERED:
            self.answered_at[lane] = time.monotonic()
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
