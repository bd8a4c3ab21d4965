"""The TypeScript clients against our server, over stdio and HTTP: v1 speaks the legacy era, v2 speaks both.

Each client runs one session with every kind of call; the tests then look at its report. As with the official Python
client, the official Python server over stdio is the control.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from .processes import marked_environment
from .support import DEADLINE, LOG_OPT_IN, NEGOTIATED, PEERS, TOOLS, TRICKY, python_peer

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
}

UNKNOWN = "no-such-tool"

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
    "after": {"op": "call", "name": "add", "arguments": {"a": 1, "b": 1}},
}

OUR_STEPS: dict[str, dict[str, Any]] = {
    "read": {"op": "read", "uri": "peer://a"},
    "prompt": {"op": "prompt", "name": "greeting", "arguments": {"name": "Ada"}},
    "complete": {
        "op": "complete",
        "ref": {"type": "ref/prompt", "name": "greeting"},
        "argument": {"name": "name", "value": "A"},
    },
    "listen": {"op": "listen", "uri": "peer://a", "announce": "announce"},
}
"""What the control has no part for."""

LATE_PROGRESS = "Received a progress notification for an unknown token"
"""What these clients say of a progress notification that shares a read with the response: their own race."""


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


OVER_STDIO = {"control": "official_server", "ours": "our_server"}
OVER_HTTP = {
    "ours over HTTP": ("http", []),
    "ours over HTTP, with a store": ("http", ["--event-store", "events.db"]),
    "ours over HTTP+SSE": ("sse", []),
}
"""The transport, and what `trio-mcp run` is told beside it."""

SESSIONS = [
    (server, client)
    for server in (*OVER_STDIO, *OVER_HTTP)
    for client, (_, mode) in CLIENTS.items()
    if server != "ours over HTTP+SSE" or mode == "legacy"
]


@contextlib.contextmanager
def reached(server: str, environment: dict[str, str], folder: Path) -> Iterator[dict[str, Any]]:
    """How a client's script reaches a server, which runs meanwhile if it is not the client's to start."""
    if server in OVER_STDIO:
        yield attrs.asdict(python_peer(OVER_STDIO[server], environment))
        return
    kind, options = OVER_HTTP[server]
    command = [sys.executable, "-m", "trio_mcp", "run", str(PEERS / "our_server.py"), "--transport", kind]
    with subprocess.Popen(
        [*command, "--port", "0", *options], env=environment, cwd=folder, stderr=subprocess.PIPE, text=True
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
    script, mode = CLIENTS[client]
    offered = TOOLS["control" if server == "control" else "ours"] | {UNKNOWN}
    steps = {name: step for name, step in STEPS.items() if step.get("name", "add") in offered}
    if server != "control":
        steps |= OUR_STEPS
    with marked_environment() as environment, reached(server, environment, tmp_path_factory.mktemp("server")) as target:
        script_input = target | {
            "modules": str(npm.modules),
            "mode": mode,
            "elicitations": {
                "Which colour?": {"action": "accept", "content": {"colour": "green"}},
                "How long?": {"action": "accept", "content": {"nights": 3, "extras": ["map"]}},
            },
            "sample": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hello"}},
            "roots": [{"uri": "file:///here"}],
            "steps": list(steps.values()),
        }
        finished = subprocess.run(
            [str(npm.node), str(PEERS / script), json.dumps(script_input)],
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
    return Session(server, modern, report, dict(zip(steps, report["steps"], strict=True)))


def test_negotiation_tells_who_the_server_is(session: Session) -> None:
    """The client settles on the era it asked for and learns the server's name, capabilities and instructions."""
    assert session.report["era"] == ("modern" if session.modern else "legacy")
    assert session.report["serverInfo"]["name"]
    assert session.report["serverInfo"]["version"]
    assert session.report["instructions"] == "Call any tool."
    assert "tools" in session.report["capabilities"]


def test_the_signature_is_the_contract(session: Session) -> None:
    """A tool's hints, docstring and annotations arrive as its schemas, description and annotations."""
    tools = {tool["name"]: tool for tool in session.result("list")["tools"]}
    assert tools["add"]["description"] == "Add two integers."
    assert tools["add"]["annotations"]["readOnlyHint"] is True
    assert {name: schema["type"] for name, schema in tools["add"]["inputSchema"]["properties"].items()} == {
        "a": "integer",
        "b": "integer",
    }
    assert set(tools["progress"]["inputSchema"]["properties"]) == {"n"}
    assert set(tools["weather"]["outputSchema"]["properties"]) == {"city", "celsius"}
    assert "outputSchema" not in tools["picture"]


def test_results_arrive_whole(session: Session) -> None:
    """Scalars are wrapped, models are objects, images are base64, and any text survives the framing."""
    assert session.result("add")["structuredContent"] == {"result": 42}
    assert session.text("add") == "42"
    assert session.text("echo") == TRICKY
    assert session.result("weather")["structuredContent"] == {"city": "Tromsø", "celsius": 21.5}
    (image,) = session.result("picture")["content"]
    assert (image["type"], image["mimeType"]) == ("image", "image/png")
    assert image["data"].startswith("iVBORw0KGgo")


def test_a_failing_tool_is_a_result(session: Session) -> None:
    """A tool's own failure is a result with isError: the message it chose arrives, an accident's message does not."""
    for step in ["fail", "crash", "invalid"]:
        assert session.result(step)["isError"] is True
    assert "this tool always fails" in session.text("fail")
    assert "secret" not in session.text("crash")


def test_an_unknown_tool_is_a_protocol_error(session: Session) -> None:
    """2025-11-25, server/tools, Error Handling: -32602. The control answers with a result instead."""
    if session.server == "control":
        assert session.result("unknown")["isError"] is True
        return
    error = session.outcomes["unknown"]["error"]
    assert error["code"] == -32602
    assert UNKNOWN in error["message"]


def test_progress_is_sent_in_order_and_not_after_a_cancellation(session: Session) -> None:
    """Every report of the tool is on the wire, in order, and a cancelled call sends none."""
    assert session.text("progress") == "4 steps"
    notes = session.report["notifications"]
    sent = [note["params"] for note in notes if note["method"] == "notifications/progress"]
    token = sent[0]["progressToken"]
    assert sent[:-1] == [
        {"progressToken": token, "progress": step, "total": 4, "message": f"step {step}"} for step in range(1, 5)
    ]
    assert sent[-1]["message"] == "started"
    assert sent[-1]["progressToken"] != token


def test_aborting_a_call_cancels_the_handler(session: Session) -> None:
    """The abort cancels the tool's own scope on the server, and the caller gets its own reason back."""
    assert session.outcomes["cancelled"]["progress"] == [{"progress": 1, "total": 2, "message": "started"}]
    assert "no longer wanted" in session.outcomes["cancelled"]["error"]["message"]
    assert session.result("events")["structuredContent"] == {"result": ["slow cancelled"]}


def test_log_messages_reach_the_client(session: Session) -> None:
    """What the tool logs arrives with level, logger and data; a server without such a tool logs nothing."""
    if "chatty" not in session.outcomes:
        assert session.report["logs"] == []
        return
    assert session.report["logs"] == [
        {"level": "info", "logger": "chatty", "data": "one"},
        {"level": "info", "logger": "chatty", "data": "two"},
    ]


def test_a_question_is_answered_inside_the_call(session: Session) -> None:
    """An elicitation reaches the client's handler, as a request or as an input round, and the tool gets the answer."""
    if "ask" not in session.outcomes:
        assert session.report["questions"] == []
        return
    assert session.report["questions"][0] == "Which colour?"
    assert session.text("ask") == "painted green"


def test_an_interview_asks_the_user_twice_the_model_and_for_the_roots(session: Session) -> None:
    """Each as a request, or as an input round."""
    if "interview" not in session.outcomes:
        assert session.server == "control"
        return
    assert session.text("interview") == "green, 3, ['map'], hello, file:///here"
    assert session.report["questions"][1:] == ["Which colour?", "How long?"]


def test_resources_prompts_and_completion(session: Session) -> None:
    if session.server == "control":
        return
    (content,) = session.result("read")["contents"]
    assert (content["uri"], content["text"]) == ("peer://a", "a")
    (message,) = session.result("prompt")["messages"]
    assert message["content"] == {"type": "text", "text": "Greet Ada."}
    assert session.result("complete")["completion"]["values"] == ["Ada", "Alan"]


def test_changes_are_heard(session: Session) -> None:
    """By a subscription and on the server's own stream, or on that of `subscriptions/listen`."""
    if session.server != "control":
        heard = ["notifications/resources/updated", "notifications/tools/list_changed"]
        assert session.result("listen") == heard


def test_ping_exists_in_the_legacy_era_only(session: Session) -> None:
    """A ping is answered with an empty result; for 2026-07-28 the client refuses to send one."""
    if session.modern:
        assert session.outcomes["ping"]["error"]["code"] == "METHOD_NOT_SUPPORTED_BY_PROTOCOL_VERSION"
    else:
        assert session.result("ping") == {}


def test_the_session_outlives_every_failure(session: Session) -> None:
    """After the failures and the cancellation a call still works, and the client complains of nothing it was sent."""
    assert session.result("after")["structuredContent"] == {"result": 2}
    assert [error for error in session.report["errors"] if LATE_PROGRESS not in error["message"]] == []


def test_a_session_over_http_ends_with_its_client(session: Session) -> None:
    """2025-11-25 `basic/transports`, Session Management, 5: after the DELETE it is not known any more."""
    with_session = session.server.startswith("ours over HTTP") and "SSE" not in session.server and not session.modern
    assert session.report.get("afterTheEnd") == (404 if with_session else None)
