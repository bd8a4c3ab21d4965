"""The everything-server as a process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.support import marked_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).parents[2]

COMMAND = [sys.executable, "-W", "error", "-m", "tests.conformance.everything_server"]
"""To be run in the checkout; with ``stdio``, or a port, as the last argument."""

DEADLINE = 180
"""Seconds. A net against a hang."""


@contextlib.contextmanager
def everything_url(checkout: Path = CHECKOUT) -> Iterator[str]:
    """Serve a checkout's server over HTTP. It must not complain of anything, and must exit cleanly when told to."""
    with marked_environment() as environment:
        server = subprocess.Popen(COMMAND, cwd=checkout, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            yield server.stderr.readline().split()[-1]
        finally:
            server.terminate()
            _, complaints = server.communicate(timeout=DEADLINE)
    assert (server.returncode, complaints) == (0, "")
