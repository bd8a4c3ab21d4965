"""The Python peers that cannot share the environment of the tests, each in one of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.installs import install_python

if TYPE_CHECKING:
    from collections.abc import Callable

MANIFESTS = Path(__file__).with_name("requirements")

ADVICE = (
    "The interop tests need a registry of Python packages once, for these. Give pip one that it can reach "
    "(its `index-url` setting, or PIP_INDEX_URL) and run them again, or run the other tests "
    "with: pytest"
)


def install(say: Callable[[str], None], name: str = "python_v1") -> Path:
    """Make the environment, unless an earlier run has done so; return its interpreter.

    Args:
        say: Called with one line of progress before anything that takes long.
        name: A manifest in requirements/: `python_v1` (the official SDK below 2, the last one with WebSocket),
            `fastmcp`, `fastmcp_tasks`, `fastmcp_skills`, `servers` (the reference servers in Python), or `models` (the
            SDKs of three vendors of models).

    Raises:
        InstallError: pip failed or did not finish; the message says what to do.
    """
    return install_python(MANIFESTS / f"{name}.txt", say, ADVICE)
