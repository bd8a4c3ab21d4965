"""Programs on the SDKs of others that need an installation of their own: the TypeScript SDK on Node, and FastMCP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from .installs import NPM_CACHE, PINS, InstallError, environment_of, folder_of, install_npm, install_python, node

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FASTMCP", "TYPESCRIPT", "InstallError", "fastmcp", "install", "missing", "typescript", "versions"]

TYPESCRIPT, FASTMCP = "the TypeScript SDK", "FastMCP"
PROGRAMS = Path(__file__).resolve().parent

_PACKAGES = PINS / "package.json"
_REQUIREMENTS = PINS / "requirements" / "fastmcp.txt"
# Its tasks are a package of their own, whose newest release is for an earlier FastMCP.
_WITH_TASKS = PINS / "requirements" / "fastmcp_tasks.txt"
# What a run compares with, of what the two manifests pin.
_NPM = ("@modelcontextprotocol/sdk", "@modelcontextprotocol/server", "@modelcontextprotocol/client")

ADVICE = (
    "This needs an npm registry and one of Python packages once. Give npm and pip some that they can reach "
    "(NPM_CONFIG_REGISTRY, PIP_INDEX_URL) and run it again; without, the rows of these peers are left out."
)


def install(say: Callable[[str], None]) -> None:
    """Install the peers, unless an earlier run has done so.

    Args:
        say: Called with one line of progress before anything that takes long.

    Raises:
        InstallError: An installer failed or did not finish; the message says what to do.
    """
    install_npm(_PACKAGES, say, ADVICE)
    for requirements in (_REQUIREMENTS, _WITH_TASKS):
        install_python(requirements, say, ADVICE)


def _modules() -> Path:
    return folder_of(NPM_CACHE, _PACKAGES)


def _have() -> dict[str, bool]:
    fast = all(environment_of(each).exists() for each in (_REQUIREMENTS, _WITH_TASKS))
    return {TYPESCRIPT: node() is not None and _modules().exists(), FASTMCP: fast}


def missing() -> list[str]:
    """Return the peers that are not installed; all rows against them are left out."""
    return [peer for peer, there in _have().items() if not there]


def typescript(program: str, *arguments: str) -> list[str] | None:
    """Return the command of a program beside this file, e.g. ``typescript("stdio", "v1")``; None if it can't run."""
    if TYPESCRIPT in missing():
        return None
    return [str(node()), str(PROGRAMS / f"ts_{program}.mjs"), str(_modules()), *arguments]


def fastmcp(*arguments: str) -> list[str] | None:
    """Return the command of the server on FastMCP; None if it can't run. The argument ``tasks`` is for its tasks."""
    if FASTMCP in missing():
        return None
    environment = environment_of(_WITH_TASKS if "tasks" in arguments else _REQUIREMENTS)
    return [str(environment), str(PROGRAMS / "fastmcp_server.py"), *arguments]


def versions() -> dict[str, str]:
    """Return the versions of the peers."""
    have = _have()
    pinned = json.loads(_PACKAGES.read_text())["dependencies"]
    return {
        **{name: pinned[name] if have[TYPESCRIPT] else "not installed" for name in _NPM},
        "fastmcp": _pinned(_REQUIREMENTS) if have[FASTMCP] else "not installed",
        "fastmcp with tasks": _pinned(_WITH_TASKS) if have[FASTMCP] else "not installed",
    }


def _pinned(requirements: Path) -> str:
    (version,) = [line[9:] for line in requirements.read_text().splitlines() if line.startswith("fastmcp==")]
    return version
