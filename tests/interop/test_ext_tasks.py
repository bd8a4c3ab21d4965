"""The requester of ``@modelcontextprotocol/ext-tasks`` against our server: results, questions, failures, cancelling."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from .support import DEADLINE, PEERS, fresh_server

if TYPE_CHECKING:
    from .node_peers import NodePeers

pytestmark = pytest.mark.interop

STEPS = [
    {"name": "plain", "arguments": {"a": 40, "b": 2}},
    {"name": "add", "arguments": {"a": 40, "b": 2}},
    {"name": "travel", "arguments": {}},
    {"name": "refuse", "arguments": {}},
    {"name": "wait", "arguments": {}, "cancel": True},
]


@pytest.fixture
async def url(nursery: trio.Nursery) -> str:
    found: str = await nursery.start(partial(fresh_server(PEERS / "our_task_server.py").serve_http, port=0))
    return found


async def test_its_session_gets_results_asks_fails_and_cancels(npm: NodePeers, url: str) -> None:
    script_input: dict[str, Any] = {
        "modules": str(npm.modules),
        "url": url,
        "elicitations": {
            "From where?": {"action": "accept", "content": {"city": "Oslo"}},
            "Where to?": {"action": "accept", "content": {"city": "Bergen"}},
        },
        "steps": STEPS,
    }
    with trio.fail_after(DEADLINE):
        finished = await trio.run_process(
            [str(npm.node), str(PEERS / "ts_tasks.mjs"), json.dumps(script_input)],
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    assert finished.returncode == 0, finished.stderr.decode()
    report = json.loads(finished.stdout)
    outcomes = report["outcomes"]
    assert {name: (each["kind"], each["status"]) for name, each in outcomes.items()} == {
        "plain": ("immediate", "completed"),
        "add": ("task", "completed"),
        "travel": ("task", "completed"),
        "refuse": ("task", "failed"),
        "wait": ("task", "cancelled"),
    }
    assert [outcomes[name]["result"]["structuredContent"]["result"] for name in ("plain", "add", "travel")] == [
        *[42, 42],
        "Oslo to Bergen",
    ]
    assert report["questions"] == ["From where?", "Where to?"]
    assert "closed on Sundays" in outcomes["refuse"]["error"]
    assert {"tools/call", "tasks/get", "tasks/update", "tasks/cancel"} <= set(report["methods"])
