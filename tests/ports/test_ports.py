"""The servers in examples/ports list what the originals list, and respond to the same calls with the same results."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.interop import python_peers
from trio_mcp import Server, StdioServerParameters

from .cases import CASES, PORTS, RECORDED, differences, filled, nothing, observe
from .originals import say, seen_of_original

DEADLINE = 120
"""Seconds; no assertion depends on it."""

NEEDS_MORE = {"fetch_server"}
"""Ports that need packages besides the library, which the environment of the originals has."""


def recorded(name: str) -> dict[str, Any]:
    seen: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return seen


def port(name: str, arguments: list[str]) -> Server | StdioServerParameters:
    """Return a port, in this process where that is possible, with the arguments of its command line."""
    file = str(PORTS / f"{name}.py")
    if name in NEEDS_MORE:
        more = str(next(python_peers.install(say, "servers").parents[1].glob("lib/*/site-packages")))
        code = (
            "import runpy, sys; sys.path.append(sys.argv[1]); del sys.argv[:2]; "
            "runpy.run_path(sys.argv[0], run_name='__main__')"
        )
        return StdioServerParameters(sys.executable, ["-c", code, more, file, *arguments], env=CASES[name].environment)
    spec = importlib.util.spec_from_file_location(f"port_{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server: Server = module.configured(arguments) if arguments else module.server
    return server


def test_every_port_has_a_case() -> None:
    assert CASES.keys() == {path.stem for path in PORTS.glob("*.py")}
    assert not [path.name for path in PORTS.glob("*.py") if "-> Any" in path.read_text()]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.again if name in NEEDS_MORE else ()) for name in CASES]
)
async def test_a_port_does_what_the_original_does(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    if name not in NEEDS_MORE:  # whose process gets them
        for variable, value in case.environment.items():
            monkeypatch.setenv(variable, value)
    for mode in (case.mode, "2026-07-28") if case.both else (case.mode,):
        with trio.fail_after(DEADLINE), (case.world or nothing)(tmp_path) as names:
            ours = await observe(port(name, list(filled(case.arguments, names))), case, names, mode)
        found = differences(recorded(name), ours)
        assert not {path for path in found if not any(re.fullmatch(known, path) for known in case.known)}
        assert all(any(re.fullmatch(known, path) for path in found) for known in case.known), "no longer different"


@pytest.mark.again
@pytest.mark.interop
@pytest.mark.parametrize("name", CASES)
async def test_the_original_does_what_is_recorded(name: str) -> None:
    with trio.fail_after(DEADLINE):
        assert await seen_of_original(name) == recorded(name)
