"""Recordings of the servers of others, served: the client programs that made them see no difference."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import mcp
import mcp_types
import pytest
import trio

from tests.cli.running import ROOT
from trio_mcp import Answers, Client, McpError
from trio_mcp.conformance import recorded

from . import python_peers
from .conftest import installed_peers
from .support import DEADLINE, Launch

pytestmark = pytest.mark.interop


@pytest.fixture
def git_server(request: pytest.FixtureRequest, environment: dict[str, str], tmp_path: Path) -> Launch:
    """Return the reference server for git, with a repository of this test."""
    python = installed_peers(request, lambda say: python_peers.install(say, "servers"))
    repository = tmp_path / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@host.example"]
    repository.mkdir()
    (repository / "poem.txt").write_text("Roses are red.\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "begin"]):
        subprocess.run([*git, *words], check=True)
    (repository / "poem.txt").write_text("Roses are blue.\n")
    return Launch(str(python), ["-m", "mcp_server_git", "--repository", str(repository)], environment)


CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "everything_server": [
        ("echo", {"message": "hello"}),
        ("get-sum", {"a": 1, "b": 2}),
        ("get-tiny-image", {}),
        ("get-structured-content", {"location": "Chicago"}),
        ("trigger-long-running-operation", {"duration": 1, "steps": 3}),
        ("trigger-elicitation-request", {}),
        ("trigger-sampling-request", {"prompt": "Write.", "maxTokens": 10}),
        ("get-roots-list", {}),
        ("no-such-tool", {}),
        ("get-sum", {"a": "x"}),
    ],
    "git_server": [
        ("git_status", {"repo_path": "REPOSITORY"}),
        ("git_diff_unstaged", {"repo_path": "REPOSITORY"}),
        ("git_log", {"repo_path": "REPOSITORY", "max_count": 1}),
        ("git_show", {"repo_path": "REPOSITORY", "revision": "HEAD"}),
        ("git_status", {"repo_path": "/nowhere"}),
        ("git_add", {}),
    ],
    "our_server": [
        ("echo", {"text": "hello"}),
        ("add", {"a": 1, "b": 2}),
        ("no_such_tool", {}),
        ("add", {"a": "x"}),
    ],
}


def plain(found: Any) -> Any:
    return found.to_wire() if hasattr(found, "to_wire") else found.model_dump(mode="json", by_alias=True)


async def attempt(call: Callable[[], Awaitable[Any]], *refusals: type[Exception]) -> Any:
    try:
        return plain(await call())
    except refusals as exc:
        return str(exc)


async def ours(target: Any, calls: list[tuple[str, dict[str, Any]]], mode: str = "auto") -> list[Any]:
    """Say everything with our client, and return all that it sees."""
    fill = {"name": "Ada", "check": True}
    answers = Answers(elicitation=lambda params: fill, sampling=lambda params: "Roses", roots=[Path("/data")])
    seen: list[Any] = []
    with trio.fail_after(DEADLINE):
        async with Client(target, mode=mode, answers=answers) as client:
            seen += [client.protocol_version, plain(client.server_info), plain(client.capabilities)]
            seen.append(client.instructions)
            for items in (
                client.iter_tools,
                client.iter_prompts,
                client.iter_resources,
                client.iter_resource_templates,
            ):
                seen.append(await attempt(partial(everything, items), McpError))
            for name, arguments in calls:
                progress: list[Any] = []
                call = partial(
                    client.call_tool,
                    name,
                    arguments,
                    on_progress=lambda each, progress=progress: progress.append(plain(each)),
                )
                seen += [await attempt(call, McpError), without_tokens(progress)]
    return seen


class Listed(list[Any]):
    def to_wire(self) -> list[Any]:
        return [each.to_wire() for each in self]


async def everything(items: Any) -> Listed:
    return Listed([each async for each in items()])


def without_tokens(progress: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in each.items() if name != "progressToken"} for each in progress]


async def theirs(launch: Launch, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """Say the same with the official client."""
    seen: list[Any] = []

    async def fill(context: Any, params: Any) -> Any:
        return mcp_types.ElicitResult(action="accept", content={"name": "Ada", "check": True})

    async def write(context: Any, params: Any) -> Any:
        text = mcp_types.TextContent(type="text", text="Roses")
        return mcp_types.CreateMessageResult(role="assistant", content=text, model="m")

    with trio.fail_after(DEADLINE):
        async with mcp.Client(
            launch.for_official(), mode="legacy", elicitation_callback=fill, sampling_callback=write
        ) as client:
            seen += [plain(await client.list_tools())]
            for name, arguments in calls:
                seen.append(await attempt(partial(client.call_tool, name, arguments), mcp.MCPError))
    return seen


def calls_of(server: str, launch: Launch) -> list[tuple[str, dict[str, Any]]]:
    place = launch.args[-1]
    return [
        (name, {key: place if value == "REPOSITORY" else value for key, value in arguments.items()})
        for name, arguments in CALLS[server]
    ]


def recording(path: Path, launch: Launch) -> Launch:
    words = ["-m", "trio_mcp", "record", str(path), "--", launch.command, *launch.args]
    return Launch(sys.executable, words, {**launch.env, "PYTHONPATH": str(ROOT)})


def replaying(path: Path, launch: Launch) -> Launch:
    words = ["-m", "trio_mcp", "replay", str(path), "--as-server"]
    return Launch(sys.executable, words, {**launch.env, "PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize("server", CALLS)
async def test_our_client_sees_no_difference(server: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    launch: Launch = request.getfixturevalue(server)
    path, calls = tmp_path / "said.jsonl", calls_of(server, launch)
    before = await ours(recording(path, launch).for_us(), calls)
    assert len(before) == 8 + 2 * len(calls)
    if server == "everything_server":
        for said in ("hello", "Name: Ada", "Roses", "file:///data", "'progress': 3", "no-such-tool not found"):
            assert said in str(before)
    assert await ours(recorded(path), calls) == before
    assert await ours(replaying(path, launch).for_us(), calls) == before


@pytest.mark.parametrize("server", CALLS)
async def test_the_official_client_sees_no_difference(
    server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    launch: Launch = request.getfixturevalue(server)
    path, calls = tmp_path / "said.jsonl", calls_of(server, launch)
    before = await theirs(recording(path, launch), calls)
    assert await theirs(replaying(path, launch), calls) == before
