"""What is called on each server of others, and on its port; and where the two are known to differ."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from trio_mcp import Answers, CapabilityError, Client, McpError, types

RECORDED = Path(__file__).with_name("recorded")
PORTS = Path(__file__).parents[2] / "examples" / "ports"

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}

Call = tuple[str, dict[str, Any]]
"""A tool and its arguments; `prompts/get NAME` and `resources/read` stand for those methods."""


@attrs.frozen
class Case:
    """A server of others and its port.

    Attributes:
        calls: What is called, in this order.
        module: The module of the original, if it has one; else it is an example of FastMCP.
        arguments: Those of its command line.
        variable: The name of the example's server.
        file: The example's path among the examples, unless the port's name says it.
        world: Makes what the calls need in a folder, and yields what stands for `{name}` in them.
        passing: What differs from run to run, as regular expressions, and what is written instead.
        answer: What the user answers to each question.
        known: Where results and lists differ, as regular expressions for paths, and why.
        environment: Variables of its process.
        mode: How the two are connected to.
        both: Whether the port is connected to in the modern era as well.
    """

    calls: list[Call]
    module: str | None = None
    arguments: tuple[str, ...] = ()
    variable: str = "mcp"
    file: str | None = None
    world: Callable[[Path], Any] | None = None
    passing: dict[str, str] = attrs.field(factory=dict)
    answer: dict[str, dict[str, Any] | None] = attrs.field(factory=dict)
    known: dict[str, str] = attrs.field(factory=dict)
    environment: dict[str, str] = attrs.field(factory=dict)
    mode: str = "auto"
    both: bool = False


AUTHOR = {
    **{f"GIT_{who}_NAME": "Ada" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "ada@example.com" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_DATE": "1767319445 +0100" for who in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
"""Makes the same commits everywhere."""


@contextmanager
def repository(folder: Path) -> Iterator[dict[str, str]]:
    """Make a repository with two branches, a tag, a rename, a binary file and a file that isn't UTF-8."""

    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", *arguments], cwd=folder / "repo", env=os.environ | AUTHOR, check=True, capture_output=True
        )

    repo = folder / "repo"
    (repo / "docs").mkdir(parents=True)
    (folder / "empty").mkdir()
    git("init", "-b", "main")
    (repo / "a.txt").write_text("one\ntwo\nthree\n")
    (repo / "docs" / "b.txt").write_text("b\n" * 20)
    # Not changed later: the original never responds to a git_diff of bytes that aren't UTF-8.
    (repo / "latin.txt").write_bytes(b"caf\xe9\n")
    git("add", ".")
    git("commit", "-m", "First\n\nWith a body.")
    git("tag", "-m", "the first", "v1")
    (repo / "a.txt").write_text("one\ntwo\nfour\n")
    git("mv", "docs/b.txt", "docs/c.txt")
    (repo / "pixel.bin").write_bytes(bytes(range(256)))
    git("add", ".")
    git("commit", "-m", "Second")
    git("branch", "side", "HEAD~1")
    (repo / "a.txt").write_text("one\ntwo\nfour\nfive\n")
    (repo / "new.txt").write_text("new\n")
    yield {"repo": str(repo), "empty": str(folder / "empty"), "folder": str(folder)}


PAGE = """<html><head><title>Tea</title></head><body><nav><a href="/">home</a></nav><article><h1>Tea</h1>
<p>Tea is <b>good</b> for you. It is made from leaves, and drunk hot at five in the afternoon, with milk or lemon.</p>
<ul><li>green</li><li>black</li></ul><p>Read <a href="/more">more</a>.</p></article></body></html>"""

ROUTES: dict[str, tuple[int, str, str]] = {
    "/robots.txt": (200, "text/plain", "# ours\nUser-agent: *\nDisallow: /private\nDisallow: /*.pdf$\n"),
    "/tea": (200, "text/html; charset=utf-8", PAGE),
    "/empty": (200, "text/html", "<html><body></body></html>"),
    "/plain": (200, "text/plain", "0123456789" * 3),
    "/data.json": (200, "application/json", '{"a": [1, 2]}'),
    "/private": (200, "text/html", PAGE),
    "/old": (302, "/tea", ""),
    "/sneaky": (302, "/private", ""),
    "/broken": (500, "text/plain", "no"),
}


class _Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, kind, body = ROUTES.get(self.path, (404, "text/plain", "nothing here"))
        self.send_response(status)
        self.send_header("Location" if status == 302 else "Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def site(folder: Path) -> Iterator[dict[str, str]]:
    """Serve a few pages on this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield {"site": f"http://127.0.0.1:{server.server_port}"}
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def nothing(folder: Path) -> Iterator[dict[str, str]]:
    """Make nothing, for a server that needs nothing."""
    yield {}


def _git(tool: str, repo: str = "{repo}", **arguments: Any) -> Call:
    return f"git_{tool}", {"repo_path": repo, **arguments}


def _convert(source: str, time: str, target: str) -> Call:
    return "convert_time", {"source_timezone": source, "time": time, "target_timezone": target}


def _fetch(path: str, **arguments: Any) -> Call:
    return "fetch", {"url": "{site}" + path, **arguments}


TAGS = {r".*/_meta/fastmcp/tags": "FastMCP tells of itself"}
WRAPS = {r"/tools/.*/outputSchema/x-fastmcp-wrap-result": "FastMCP marks for its own client what it has wrapped"}
"""Where servers on FastMCP differ from their ports."""

CASES = {
    "git_server": Case(
        module="mcp_server_git",
        world=repository,
        environment=AUTHOR,
        arguments=("--repository", "{repo}"),
        passing={r"stderr: '[^']*(?s:.*)'": "stderr: <what this version of git says>"},
        calls=[
            _git("status"),
            _git("diff_unstaged"),
            _git("diff_unstaged", context_lines=0),
            _git("diff_staged"),
            _git("add", files=["new.txt"]),
            _git("add", files=["new.txt"]),
            _git("add", files=["../outside"]),
            _git("add", files=["missing.txt"]),
            _git("add", files=[]),
            _git("diff_staged", context_lines=1),
            _git("reset"),
            _git("commit", message="nothing staged"),
            _git("add", files=["."]),
            _git("commit", message="Third\n\nBy a tool."),
            _git("status"),
            _git("log"),
            _git("log", max_count=1),
            _git("log", start_timestamp="2030-01-01"),
            _git("log", end_timestamp="--output=x"),
            _git("log", max_count="many"),
            _git("diff", target="side"),
            _git("diff", target="HEAD~1", context_lines=0),
            _git("diff", target="nowhere"),
            _git("diff", target="--output=x"),
            _git("show", revision="HEAD"),
            _git("show", revision="HEAD~1"),
            _git("show", revision="v1"),
            _git("show", revision="HEAD:a.txt"),
            _git("show", revision="HEAD:latin.txt"),
            _git("show", revision="HEAD:docs"),
            _git("show", revision="HEAD:"),
            _git("show", revision="nowhere"),
            _git("show", revision="--help"),
            _git("create_branch", branch_name="topic"),
            _git("create_branch", branch_name="topic"),
            _git("create_branch", branch_name="other", base_branch="side"),
            _git("create_branch", branch_name="lost", base_branch="nowhere"),
            _git("create_branch", branch_name="-d"),
            _git("checkout", branch_name="topic"),
            _git("checkout", branch_name="v1"),
            _git("checkout", branch_name="nowhere"),
            _git("create_branch", branch_name="from_nothing"),
            _git("checkout", branch_name="main"),
            _git("branch", branch_type="local"),
            _git("branch", branch_type="all", contains="HEAD"),
            _git("branch", branch_type="local", not_contains="HEAD"),
            _git("branch", branch_type="remote"),
            _git("branch", branch_type="odd"),
            _git("branch", branch_type="local", contains="nowhere"),
            _git("status", "{folder}"),
            _git("status", "{repo}/docs"),
            ("git_status", {}),
            ("git_push", {}),
        ],
    ),
    "time_server": Case(
        module="mcp_server_time",
        arguments=("--local-timezone", "Europe/Oslo"),
        passing={r"\d{4}-\d\d-\d\d": "<date>", r"\b[A-Z][a-z]+day\b": "<day>"},
        calls=[
            _convert("Asia/Tokyo", "09:30", "Asia/Kolkata"),
            _convert("Asia/Kathmandu", "23:59", "UTC"),
            _convert("UTC", "00:00", "Asia/Tokyo"),
            _convert("UTC", "7:5", "UTC"),
            _convert("UTC", "25:00", "UTC"),
            _convert("UTC", "noon", "UTC"),
            _convert("Atlantis/Capital", "09:30", "UTC"),
            _convert("UTC", "09:30", "../UTC"),
            _convert("", "09:30", "UTC"),
            _convert("UTC", "09:30", ""),
            ("get_current_time", {"timezone": ""}),
            ("get_current_time", {"timezone": "utc"}),
            ("get_current_time", {}),
            ("get_current_time", {"timezone": 7}),
            ("get_time", {}),
        ],
    ),
    "fetch_server": Case(
        module="mcp_server_fetch",
        environment={"PATH": "/nowhere"},  # with a Node.js, readabilipy wants packages of npm, and fails without them
        world=site,
        known={"/results/22/message": "the original has its own words for a prompt without its URL"},
        arguments=("--allow-private-ips",),
        calls=[
            _fetch("/tea"),
            _fetch("/tea", raw=True),
            _fetch("/empty"),
            _fetch("/plain"),
            _fetch("/plain", max_length=10),
            _fetch("/plain", max_length=10, start_index=20),
            _fetch("/plain", start_index=30),
            _fetch("/data.json"),
            _fetch("/old"),
            _fetch("/missing"),
            _fetch("/broken"),
            _fetch("/private"),
            _fetch("/a.pdf"),
            _fetch("/sneaky"),
            _fetch("/plain", max_length=0),
            _fetch("/plain", max_length="10"),
            ("fetch", {"url": "http://127.0.0.1:1/"}),
            ("fetch", {"url": "not a url"}),
            ("fetch", {}),
            ("search", {}),
            ("prompts/get fetch", {"url": "{site}/private"}),
            ("prompts/get fetch", {"url": "{site}/missing"}),
            ("prompts/get fetch", {}),
            ("prompts/get search", {}),
        ],
    ),
    "fastmcp_echo": Case(
        known=TAGS | WRAPS,
        calls=[
            ("echo_tool", {"text": "hello"}),
            ("echo_tool", {}),
            ("echo_tool", {"text": 7}),
            ("resources/read", {"uri": "echo://static"}),
            ("resources/read", {"uri": "echo://hello"}),
            ("resources/read", {"uri": "nowhere://hello"}),
            ("prompts/get echo", {"text": "hello"}),
            ("prompts/get echo", {}),
        ],
    ),
    "fastmcp_complex_inputs": Case(
        known=TAGS | WRAPS | {"/results/1/content.*": "FastMCP has no text for an empty list; here it is `[]`"},
        calls=[
            ("name_shrimp", {"tank": {"shrimp": [{"name": "Bob"}, {"name": "Ann"}]}, "extra_names": ["Eve"]}),
            ("name_shrimp", {"tank": {"shrimp": []}, "extra_names": []}),
            ("name_shrimp", {"tank": {"shrimp": [{"name": "a name that is too long"}]}, "extra_names": []}),
            ("name_shrimp", {"tank": {"shrimp": [{"name": "Bob"}]}}),
        ],
    ),
    "fastmcp_elicitation": Case(
        known=TAGS | WRAPS,
        mode="legacy",  # FastMCP asks users only in the legacy era, the port in both
        both=True,
        answer={
            "What is your name?": {"value": "Ada"},
            "Quick survey — tell us about yourself:": {"favorite_color": "red", "lucky_number": 7},
        },
        calls=[("greet", {}), ("survey", {})],
    ),
    "fastmcp_persistent_state": Case(
        mode="legacy",  # the modern era has no sessions
        file="persistent_state/server.py",
        variable="server",
        known=TAGS | WRAPS | {"/results/4/.*": "a context does not name its transport"},
        passing={r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b": "<id>"},
        calls=[
            ("get_value", {"key": "tea"}),
            ("set_value", {"key": "tea", "value": "five"}),
            ("get_value", {"key": "tea"}),
            ("set_value", {"key": "tea"}),
            ("list_session_info", {}),
        ],
    ),
    "fastmcp_tool_result_echo": Case(
        known=TAGS,
        calls=[("echo", {"text": "two words"}), ("echo", {"text": ""}), ("echo", {})],
    ),
    "fastmcp_mount_example": Case(
        known=TAGS | WRAPS,
        variable="app",
        calls=[
            ("weather_get_weather_forecast", {"location": "Oslo"}),
            ("news_get_news_headlines", {}),
            ("check_app_status", {}),
            ("get_weather_forecast", {"location": "Oslo"}),
            ("resources/read", {"uri": "weather://weather/forecast"}),
            ("resources/read", {"uri": "news://news/headlines"}),
            ("resources/read", {"uri": "weather://forecast"}),
        ],
    ),
}


def filled(value: Any, names: dict[str, str]) -> Any:
    """Put what a world has into the calls and arguments that need it."""
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace(f"{{{name}}}", text)
        return value
    if isinstance(value, dict):
        return {key: filled(each, names) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(filled(each, names) for each in value)
    return value


WORDS = {
    # The official SDK writes this before every failure.
    r"^Error executing tool \w+: (?=.)": "",
    # Arguments that don't fit: the others show pydantic's report, which names their own types; we its sentences.
    r"^\d+ validation errors? for \S+\n(\S+)\n  (.+?) \[type=(?s:.*)": r"\1: \2",
    r"^invalid arguments for the (tool|prompt) '\w+': ": "",
    r"^(Error rendering prompt '\w+': )?Missing required arguments: {'(\w+)'}$": r"\2: missing",
    r"^(\w+): (Field required|Missing required argument)$": r"\1: missing",
    r"^Unknown (tool|prompt): '?(\w+)'?$": r"unknown \1: '\2'",
    r"^Resource not found: .*": "Resource not found",
}
"""What others word differently, and how both are written here."""


def lasting(value: Any, case: Case, names: dict[str, str]) -> Any:
    """Return what was seen without that which is different in another run, and in the words of `WORDS`."""
    if isinstance(value, dict):
        return {key: lasting(each, case, names) for key, each in value.items()}
    if isinstance(value, list):
        return [lasting(each, case, names) for each in value]
    if isinstance(value, str):
        for name, found in names.items():
            value = value.replace(found, f"{{{name}}}")
        for pattern, instead in (WORDS | case.passing).items():
            value = re.sub(pattern, instead, value)
        if value.startswith("{\n"):  # the official SDK indents JSON, the others don't
            value = json.dumps(json.loads(value), separators=(",", ":"), ensure_ascii=False)
    return value


async def observe(target: Any, case: Case, names: dict[str, str], mode: str = "auto") -> dict[str, Any]:
    """Return what a server lists, and its result or error for each call."""
    asked: list[Any] = []

    async def user(form: types.ElicitRequestFormParams) -> Any:
        asked.append(form.to_wire())
        return case.answer[form.message]

    answers = Answers(elicitation=user, elicitation_modes=["form"]) if case.answer else None
    async with Client(target, mode=mode, answers=answers) as client:
        seen: dict[str, Any] = {}
        for method, key in LISTS.items():
            try:
                seen[key] = sorted((await client.request(method))[key], key=lambda each: str(each["name"]))
            except (McpError, CapabilityError):
                seen[key] = []
        results = []
        for name, arguments in filled(case.calls, names):
            asked.clear()
            try:
                result = await _call(client, name, arguments)
            except McpError as exc:
                result = {"code": exc.code, "message": exc.message}
            results.append({"call": [name, arguments], **result, **({"asked": [*asked]} if asked else {})})
        seen["results"] = results
        seen["instructions"] = client.instructions
    return {key: lasting(value, case, names) for key, value in seen.items()}


async def _call(client: Client, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    method, _, of = name.partition(" ")
    if method == "resources/read":
        return {"contents": (await client.request(method, arguments))["contents"]}
    if method == "prompts/get":
        return {"messages": (await client.request(method, {"name": of, "arguments": arguments}))["messages"]}
    result = (await client.call_tool(name, arguments)).to_wire()
    kept = {key: result[key] for key in ("content", "structuredContent") if key in result}
    return {**kept, "isError": result.get("isError", False)}


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> set[str]:
    """Return the paths at which two servers differ, but for titles and `additionalProperties` in schemas."""
    before, after = dict(_leaves(theirs, "")), dict(_leaves(ours, ""))
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            if key not in ("title", "additionalProperties") or path.endswith("/properties"):
                yield from _leaves(each, f"{path}/{key}")
    elif isinstance(value, list) and value:
        for number, each in enumerate(value):
            name = each.get("name", number) if isinstance(each, dict) else number
            yield from _leaves(each, f"{path}/{name}")
    else:
        yield path, value
