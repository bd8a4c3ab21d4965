"""Extensions that a server declares and a client does not use take no part in a call."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import trio_mcp
from tests.extensions.skills.folders import write_skill
from trio_mcp import Client, Server
from trio_mcp.extensions import Apps, Skills

PACKAGE = str(Path(trio_mcp.__file__).parent)


@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
async def test_a_call_runs_through_the_same_functions(mode: Any, tmp_path: Path) -> None:
    """A count of functions does not depend on the machine, as a time would."""
    write_skill(tmp_path, "good")
    apps = Apps()
    apps.page("ui://clock/face")(lambda: "<!doctype html>")
    plain, declaring = [await _functions([], mode), await _functions([apps, Skills(tmp_path)], mode)]
    assert plain.total() > 500
    assert declaring == plain


async def _functions(extensions: list[Any], mode: Any) -> Counter[str]:
    """Return how often each function of the package runs in ten calls of a tool."""
    server = Server("desk", extensions=extensions)
    found: Counter[str] = Counter()

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            found[f"{frame.f_code.co_filename}: {frame.f_code.co_qualname}"] += 1

    async with Client(server, mode=mode) as client:
        for _ in range(5):
            await client.call_tool("add", {"a": 1, "b": 2})
        sys.setprofile(note)
        try:
            for _ in range(10):
                await client.call_tool("add", {"a": 1, "b": 2})
        finally:
            sys.setprofile(None)
    return found
