"""The servers that examples/ports was written after, and how each is started."""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.installs import installed, run_installer
from tests.interop import python_peers
from trio_mcp import StdioServerParameters

from .cases import CASES, filled, nothing, observe

EXAMPLES = Path(__file__).with_name("fastmcp_examples.txt")


def _fastmcp_examples(say: Callable[[str], None]) -> Path:
    """Return the folder with FastMCP's examples, unpacked by an earlier run or now."""

    def fill(folder: Path) -> None:
        # With the pip of the tests: the environment of the peer has none.
        pip = [sys.executable, "-m", "pip", "--python", str(python_peers.install(say, "fastmcp"))]
        command = [*pip, "download", "-q", "--no-deps", "--no-binary", "fastmcp", "-r", str(EXAMPLES)]
        run_installer(command, dict(os.environ), folder, EXAMPLES, python_peers.ADVICE)
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            for member in packed:
                _, _, name = member.name.partition("/")
                if member.isfile() and name.startswith("examples/") and name.endswith(".py"):
                    member.name = name
                    packed.extract(member, folder, filter="data")
        archive.unlink()

    return installed("fastmcp-examples", EXAMPLES, "", say, fill) / "examples"


def say(line: str) -> None:
    print(line, file=sys.stderr)


def original(name: str, names: dict[str, str]) -> StdioServerParameters:
    """Return how the original of a port is started.

    Raises:
        InstallError: It could not be installed.
    """
    case = CASES[name]
    if case.module is not None:
        command = [str(python_peers.install(say, "servers")), "-m", case.module, *filled(case.arguments, names)]
    else:
        file = _fastmcp_examples(say) / (case.file or f"{name.removeprefix('fastmcp_')}.py")
        code = "import runpy, sys; runpy.run_path(sys.argv[1])[sys.argv[2]].run(show_banner=False)"
        command = [str(python_peers.install(say, "fastmcp")), "-c", code, str(file), case.variable]
    return StdioServerParameters(command[0], command[1:], env=case.environment)


async def seen_of_original(name: str) -> dict[str, Any]:
    """Return what the original of a port lists and responds."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder, (case.world or nothing)(Path(folder)) as names:
        return await observe(original(name, names), case, names, case.mode)
