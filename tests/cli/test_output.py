"""What the commands print: colours where they are wanted, and words rather than Python's."""

from __future__ import annotations

import contextlib
import enum
import io
import itertools
import threading
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from trio_mcp import Client, Context, Server
from trio_mcp.cli import main
from trio_mcp.cli.client_commands import COMMANDS
from trio_mcp.cli.messages import has_colour, paint

# Environment, whether the stream is a terminal, whether it gets colours.
COLOURS = [
    ({}, True, True),
    ({}, False, False),
    ({"NO_COLOR": "1"}, True, False),
    ({"NO_COLOR": ""}, True, True),
    ({"TERM": "dumb"}, True, False),
    ({"FORCE_COLOR": "1"}, False, True),
    ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
    ({"FORCE_COLOR": "0"}, False, False),
    ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
]


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a plain terminal, whatever that of the tests is."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("variables", "is_terminal", "wanted"), COLOURS)
def test_colours_follow_the_conventions(
    variables: dict[str, str], is_terminal: bool, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert has_colour(stream) is wanted
    assert paint("x", "name", stream) == ("\x1b[36mx\x1b[0m" if wanted else "x")


server = Server("plain", version="1")


@server.tool
def choose(colour: Literal["red", True]) -> None:
    """Choose a colour."""


CAPABILITIES = {
    "tools": {"listChanged": True},
    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
    "experimental": {"x": {"a": [1, None], "off": False}},
}


@pytest.mark.parametrize(("json", "colour"), [(False, False), (False, True), (True, True)])
async def test_inspect_prints_no_python(
    json: bool, colour: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if colour:
        monkeypatch.setenv("FORCE_COLOR", "1")
    async with Client(server) as client:
        capabilities = type(client.capabilities).model_validate(CAPABILITIES)
        monkeypatch.setattr(type(client), "capabilities", capabilities)
        await COMMANDS["inspect"](client, Namespace(json=json))
    shown = capsys.readouterr().out
    if json:
        assert "\x1b" not in shown
        return
    if colour:
        assert "\n  \x1b[1mtools\x1b[0m\n    \x1b[36mchoose\x1b[0m(colour" in shown
        return
    assert "    tasks: list, cancel, requests.tools.call\n    tools: listChanged\n" in shown
    assert "    experimental: x.a = [1, null]\n" in shown
    assert "    choose(colour: red|true)\n" in shown


class Status(enum.Enum):
    OPEN = "open"
    CLOSED = "closed"


class Where(BaseModel):
    city: str


CIRCLE: dict[str, Any] = {
    "type": "object",
    "properties": {"circle": {"$ref": "#/$defs/a"}, "nowhere": {"$ref": "#/$defs/b"}, "deep": {"$ref": "#/$defs/c"}},
    "$defs": {
        "a": {"$ref": "#/$defs/a"},
        "c": {"type": "array", "items": {"$ref": "#/$defs/c"}},
    },
}


async def test_a_parameter_by_reference_is_shown_as_one_has_to_type_it(capsys: pytest.CaptureFixture[str]) -> None:
    async def add_odd(context: Context, call_next: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        result = await call_next()
        return {**result, "tools": [*result["tools"], {"name": "odd", "inputSchema": CIRCLE}]}

    tickets = Server("tickets", middleware=[add_odd])

    @tickets.tool
    async def search(
        text: str,
        status: Status | None = None,
        several: list[Status] = [],  # noqa: B006
        where: Where | None = None,
        limit: int | None = None,
    ) -> None: ...

    async with Client(tickets) as client:
        await COMMANDS["list"](client, Namespace(json=False, kinds=["tools"]))
    shown = capsys.readouterr().out
    assert (
        "  search(text: string, status?: open|closed|null, several?: array of open|closed, where?: object | null,"
        " limit?: integer | null)\n"
    ) in shown
    assert "  odd(circle?, nowhere?, deep?: array of array" in shown


titled = Server("titled")
titled.add_tool(choose, name="by-title", title="Choose", annotations={"title": "Pick"})
titled.add_tool(choose, name="by-annotation", annotations={"title": "Pick"})
titled.add_tool(choose, name="by-name")


async def test_a_tool_is_shown_under_its_title_or_that_of_its_annotations(capsys: pytest.CaptureFixture[str]) -> None:
    """Schema, `Tool`: the name to display is ``title``, ``annotations.title``, then ``name``."""
    async with Client(titled) as client:
        await COMMANDS["list"](client, Namespace(json=False, kinds=("tools",)))
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    below = {line.partition("(")[0]: after for line, after in itertools.pairwise(shown) if line.startswith("by-")}
    assert below == {"by-title": "Choose", "by-annotation": "Pick", "by-name": "Choose a colour."}


class NotFound(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None: ...


@contextlib.contextmanager
def nothing_there() -> Iterator[str]:
    """Serve 404, and nothing else; yield the URL, without a path."""
    with HTTPServer(("127.0.0.1", 0), NotFound) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


@pytest.mark.parametrize("path", ["", "/", "/other"])
def test_a_url_without_a_path_may_lack_mcp(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with nothing_there() as url:
        assert main(["list", url + path, "--mode", "2026-07-28", "--verbose", "--header", "Cookie: crumb"]) == 3
    said = capsys.readouterr().err
    assert said.endswith(f"; did you mean {url}/mcp?\n") is (path != "/other")
    assert "<-- 404 Not Found\n" in said
    assert " cookie: ***\n" in said
