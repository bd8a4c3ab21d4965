"""The moments at which handlers are cancelled, which the tool ``wait`` writes to a file."""

from __future__ import annotations

import time
from typing import TextIO

from benchmarks.measure.processes import ProcessFailed

_MOMENT = 0.001  # seconds between two looks at the file


def expect(lines: TextIO, number: int) -> int:
    """Return the time in the next line of a file, once it is there; 0 if it has none. It must begin with a number."""
    deadline = time.monotonic() + 60
    line = ""
    while not line.endswith("\n"):
        if time.monotonic() > deadline:
            raise ProcessFailed("a cancellation reached no handler within a minute")
        time.sleep(_MOMENT)
        line += lines.readline()
    found, _, moment = line.partition(" ")
    if int(found) != number:
        raise ProcessFailed(f"not call {number} but {found} was cancelled")
    return int(moment or 0)
