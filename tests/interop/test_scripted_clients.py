"""The TypeScript clients, and the Python one below 2, against our server: v1 speaks the legacy era, v2 speaks both.

Each client runs one session with every kind of call; the tests then look at its report.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from .support import DEADLINE, LOG_OPT_IN, NEGOTIATED, PEERS, TRICKY, marked_environment, python_peer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .node_peers import NodePeers

pytestmark = pytest.mark.interop

CLIENTS = {
    "v1": ("ts_client.mjs", "legacy"),
    "v2-legacy": ("ts_client_modern.mjs", "legacy"),
    "v2-auto": ("ts_client_modern.mjs", "auto"),
    "v2-pinned": ("ts_client_modern.mjs", "2026-07-28"),
    "Python v1": ("python_v1_client.py", "legacy"),
}

UNKNOWN = "no-such-tool"

LARGE = 400_000
"""Characters. The answer has them twice, and the Python client takes no more than 1 MiB at once."""

STEPS: dict[str, dict[str, Any]] = {
    "list": {"op": "list_tools"},
    "add": {"op": "call", "name": "add", "arguments": {"a": 2, "b": 40}},
    "echo": {"op": "call", "name": "echo", "arguments": {"text": TRICKY}},
    "weather": {"op": "call", "name": "weather", "arguments": {"city": "Tromsø"}},
    "picture": {"op": "call", "name": "picture", "arguments": {}},
    "fail": {"op": "call", "name": "fail", "arguments": {}},
    "crash": {"op": "call", "name": "crash", "arguments": {}},
    "invalid": {"op": "call", "name": "add", "arguments": {"a": "not a number"}},
    "unknown": {"op": "call", "name": UNKNOWN, "arguments": {}},
    "progress": {"op": "call", "name": "progress", "arguments": {"n": 4}, "progress": True},
    "cancelled": {"op": "call", "name": "slow", "arguments": {"seconds": 3600}, "cancelOnProgress": True},
    "events": {"op": "call", "name": "events", "arguments": {"until": "slow cancelled"}},
    "chatty": {"op": "call", "name": "chatty", "arguments": {"words": ["one", "two"]}, "meta": LOG_OPT_IN},
    "ask": {"op": "call", "name": "ask", "arguments": {}},
    "interview": {"op": "call", "name": "interview", "arguments": {}},
    "ping": {"op": "ping"},
    "large": {"op": "large", "size": LARGE},
    "after": {"op": "call", "name": "add", "arguments": {"a": 1, "b": 1}},
    "read": {"op": "read", "uri": "peer://a"},
    "prompt": {"op": "prompt", "name": "greeting", "arguments": {"name": "Ada"}},
    "complete": {
        "op": "complete",
        "ref": {"type": "ref/prompt", "name": "greeting"},
        "argument": {"name": "name", "value": "A"},
    },
    "listen": {"op": "listen", "uri": "peer://a", "announce": "announce"},
}
LATE_PROGRESS = "Received a progress notification for an unknown token"
"""What these clients say of a progress notification that shares a read with the response: their own race."""

ABORTED = "This operation was aborted"
"""What they say of a POST that is still on its way as they close the session: another race of their own."""


@attrs.frozen
class Session:
    """One client's view of one server."""

    server: str
    modern: bool
    report: dict[str, Any]
    outcomes: dict[str, dict[str, Any]]

    def result(self, step: str) -> dict[str, Any]:
        found: dict[str, Any] = self.outcomes[step]["result"]
        return found

    def text(self, step: str) -> str:
        """Return the text of a result that has one text block and nothing else."""
        (block,) = self.result(step)["content"]
        assert block["type"] == "text"
        found: str = block["text"]
        return found


SERVERS = {
    "stdio": ("stdio", []),
    "HTTP": ("http", ["--port", "0"]),
    "HTTP, with a store": ("http", ["--port", "0", "--event-store", "events.db"]),
    "HTTP+SSE": ("sse", ["--port", "0"]),
    "WebSocket": ("websocket", ["--port", "0"]),
    "TCP": ("tcp", ["--port", "0"]),
    "Unix": ("unix", ["--path", "socket"]),
}
"""The transport, and what `trio-mcp run` is told beside it."""

SOCKETS = ("WebSocket", "TCP", "Unix")
ONCE = [("WebSocket", "v1"), ("WebSocket", "Python v1"), ("TCP", "v2-auto")]
"""Over these, one client of each kind; the others apart."""

SESSIONS = [
    pytest.param(
        (server, client), marks=[pytest.mark.again] if server in SOCKETS and (server, client) not in ONCE else []
    )
    for server in SERVERS
    for client, (_, mode) in CLIENTS.items()
    if (server != "HTTP+SSE" or mode == "legacy") and (client != "Python v1" or server == "WebSocket")
]
"""The Python client can be given no transport but its own, and those are tested with its version 2."""


@contextlib.contextmanager
def reached(server: str, environment: dict[str, str], folder: Path) -> Iterator[dict[str, Any]]:
    """How a client's script reaches our server, which runs meanwhile if it is not the client's to start."""
    kind, options = SERVERS[server]
    if kind == "stdio":
        yield attrs.asdict(python_peer("our_server", environment))
        return
    command = [sys.executable, "-m", "trio_mcp", "run", str(PEERS / "our_server.py"), "--transport", kind]
    with subprocess.Popen(
        [*command, *options], env=environment, cwd=folder, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        yield {"url": process.stderr.readline().split()[-1], "kind": kind}
        process.terminate()
        said = process.stderr.read()
        assert process.wait(DEADLINE) == 0
        assert said.count("Traceback") == said.count("ZeroDivisionError: a secret of the server") == 1, said


@pytest.fixture(scope="module", params=SESSIONS, ids=", ".join)
def session(request: pytest.FixtureRequest, npm: NodePeers, tmp_path_factory: pytest.TempPathFactory) -> Session:
    server, client = request.param
    interpreter = request.getfixturevalue("python_v1") if CLIENTS[client][0].endswith(".py") else npm.node
    with marked_environment() as environment, reached(server, environment, tmp_path_factory.mktemp("server")) as target:
        return session_of(client, interpreter, npm, environment, server, target)


def session_of(
    client: str, interpreter: Path, npm: NodePeers, environment: dict[str, str], server: str, target: dict[str, Any]
) -> Session:
    """Run a client, and return what it has reported.

    Args:
        client: One of `CLIENTS`.
        interpreter: The program that runs its script.
        npm: The npm peers.
        environment: Its environment.
        server: One of `SERVERS`.
        target: How the script reaches that.
    """
    script, mode = CLIENTS[client]
    script_input = target | {
        "modules": str(npm.modules),
        "mode": mode,
        "elicitations": {
            "Which colour?": {"action": "accept", "content": {"colour": "green"}},
            "How long?": {"action": "accept", "content": {"nights": 3, "extras": ["map"]}},
        },
        "sample": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hello"}},
        "roots": [{"uri": "file:///here"}],
        "steps": list(STEPS.values()),
    }
    finished = subprocess.run(
        [str(interpreter), str(PEERS / script), json.dumps(script_input)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout)
    assert report["protocolVersion"] == NEGOTIATED[mode]
    modern = NEGOTIATED[mode] == "2026-07-28"
    return Session(server, modern, report, dict(zip(STEPS, report["steps"], strict=True)))


def test_it_learns_who_the_server_is_and_what_it_offers(session: Session) -> None:
    """A tool's hints, docstring and annotations arrive as its schemas, description and annotations."""
    assert session.report["era"] == ("modern" if session.modern else "legacy")
    assert session.report["serverInfo"]["name"]
    assert session.report["serverInfo"]["version"]
    assert session.report["instructions"] == "Call any tool."
    assert "tools" in session.report["capabilities"]
    tools = {tool["name"]: tool for tool in session.result("list")["tools"]}
    assert tools["add"]["description"] == "Add two integers."
    assert tools["add"]["annotations"]["readOnlyHint"] is True
    kinds = {name: schema["type"] for name, schema in tools["add"]["inputSchema"]["properties"].items()}
    assert kinds == {"a": "integer", "b": "integer"}
    assert set(tools["progress"]["inputSchema"]["properties"]) == {"n"}
    assert set(tools["weather"]["outputSchema"]["properties"]) == {"city", "celsius"}
    assert "outputSchema" not in tools["picture"]


def test_results_arrive_whole_and_failures_as_what_they_are(session: Session) -> None:
    """A tool's own failure is a result: the message it chose arrives, an accident's message does not."""
    assert session.result("add")["structuredContent"] == {"result": 42}
    assert session.text("add") == "42"
    assert session.text("echo") == TRICKY
    assert session.outcomes["large"]["result"] == LARGE
    assert session.result("weather")["structuredContent"] == {"city": "Tromsø", "celsius": 21.5}
    (image,) = session.result("picture")["content"]
    assert (image["type"], image["mimeType"]) == ("image", "image/png")
    assert image["data"].startswith("iVBORw0KGgo")
    (content,) = session.result("read")["contents"]
    assert (content["uri"], content["text"]) == ("peer://a", "a")
    (message,) = session.result("prompt")["messages"]
    assert message["content"] == {"type": "text", "text": "Greet Ada."}
    assert session.result("complete")["completion"]["values"] == ["Ada", "Alan"]
    for step in ["fail", "crash", "invalid"]:
        assert session.result(step)["isError"] is True
    assert "this tool always fails" in session.text("fail")
    assert "secret" not in session.text("crash")
    error = session.outcomes["unknown"]["error"]  # 2025-11-25, server/tools, Error Handling
    assert error["code"] == -32602
    assert UNKNOWN in error["message"]


def test_what_a_call_brings_with_it(session: Session) -> None:
    """Progress in order, and none after a cancellation, which ends the handler; log messages, questions, changes."""
    assert session.text("progress") == "4 steps"
    notes = session.report["notifications"]
    *sent, last = [note["params"] for note in notes if note["method"] == "notifications/progress"]
    token = sent[0]["progressToken"]
    assert sent == [
        {"progressToken": token, "progress": step, "total": 4, "message": f"step {step}"} for step in range(1, 5)
    ]
    assert last["message"] == "started"
    assert last["progressToken"] != token
    assert session.outcomes["cancelled"]["progress"] == [{"progress": 1, "total": 2, "message": "started"}]
    assert "no longer wanted" in session.outcomes["cancelled"]["error"]["message"]
    assert session.result("events")["structuredContent"] == {"result": ["slow cancelled"]}
    logged = [{"level": "info", "logger": "chatty", "data": word} for word in ("one", "two")]
    assert session.report["logs"] == logged
    assert session.text("ask") == "painted green"
    assert session.text("interview") == "green, 3, ['map'], hello, file:///here"
    assert session.report["questions"] == ["Which colour?", "Which colour?", "How long?"]
    heard = ["notifications/resources/updated", "notifications/tools/list_changed"]
    # Where processes share a session, a change that meets the subscription in another process may be told twice.
    assert list(dict.fromkeys(session.result("listen"))) == heard


def test_the_session_outlives_every_failure_and_ends_with_its_client(session: Session) -> None:
    """The client complains of nothing it was sent; for 2026-07-28 it refuses to send a ping.

    2025-11-25 `basic/transports`, Session Management, 5: after the DELETE a session is not known any more.
    """
    if session.modern:
        assert session.outcomes["ping"]["error"]["code"] == "METHOD_NOT_SUPPORTED_BY_PROTOCOL_VERSION"
    else:
        assert session.result("ping") == {}
    assert session.result("after")["structuredContent"] == {"result": 2}
    messages = [error["message"] for error in session.report["errors"]]
    assert [each for each in messages if LATE_PROGRESS not in each and ABORTED not in each] == []
    with_session = SERVERS[session.server][0] == "http" and not session.modern
    assert session.report.get("afterTheEnd") == (404 if with_session else None)
