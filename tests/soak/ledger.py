"""A record of effects, kept outside the processes that caused them: a line for each, appended in one system call."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path


class Ledger:
    """Appends lines to a file that several processes share; a process that is killed has written a line or not."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, call: str, what: str) -> None:
        os.write(self._file, f"{call} {what}\n".encode())

    def close(self) -> None:
        os.close(self._file)


def effects(path: Path) -> dict[str, Counter[str]]:
    """Count how often each call occurs, for each kind of line."""
    found: dict[str, Counter[str]] = {}
    with path.open() as lines:
        for line in lines:
            call, _, what = line.rstrip("\n").partition(" ")
            found.setdefault(what, Counter())[call] += 1
    return found
