"""Resources, prompts, completion and log messages between our own two ends, in memory and in both eras."""

from __future__ import annotations

import base64
from typing import Any, Literal

import pytest
import trio

from trio_mcp import CapabilityError, Client, Context, ListOptions, McpError, Server
from trio_mcp.types import (
    BlobResourceContents,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)

MODES = ["legacy", "auto"]


def make_server() -> Server:
    server = Server("library", lists=ListOptions(page_size=2))
    for number in range(5):
        server.add_resource(f"lib://book/{number}", lambda: "text", name=f"book{number}")

    @server.resource("lib://scan/{number}")
    async def scan(number: int) -> bytes:
        return bytes([number])

    @server.prompt
    async def summary(title: str, style: Literal["short", "long"] = "short", *, ctx: Context) -> str:
        await ctx.log("notice", f"summing up {title}")
        return f"A {style} summary of {title}"

    @server.completion(prompt="summary", argument="title")
    async def titles(typed: str, known: dict[str, str]) -> list[str]:
        return [f"{typed}x", *known.values()]

    @server.completion(resource="lib://scan/{number}", argument="number")
    async def numbers(typed: str) -> list[str]:
        return [f"{typed}{digit}" for digit in range(10)]

    return server


@pytest.mark.parametrize("mode", MODES)
async def test_resources(mode: str) -> None:
    async with Client(make_server(), mode=mode) as client:
        assert len((await client.list_resources()).resources) == 2
        assert [found.name async for found in client.iter_resources()] == [f"book{number}" for number in range(5)]
        assert [found.uri_template async for found in client.iter_resource_templates()] == ["lib://scan/{number}"]
        (book,) = (await client.read_resource("lib://book/3")).contents
        assert isinstance(book, TextResourceContents)
        assert (book.uri, book.text) == ("lib://book/3", "text")
        (scan,) = (await client.read_resource("lib://scan/7")).contents
        assert isinstance(scan, BlobResourceContents)
        assert base64.b64decode(scan.blob) == b"\x07"
        with pytest.raises(McpError) as caught:
            await client.read_resource("lib://none")
        assert caught.value.code == (-32002 if mode == "legacy" else -32602)


async def test_subscriptions() -> None:
    server, news = make_server(), []

    def see(notification: Any) -> None:
        news.append((notification.method, notification.params))

    async with Client(server, mode="legacy", on_message=see) as client:
        await client.subscribe_resource("lib://book/1")
        for number in (0, 1):
            server.notify_resource_updated(f"lib://book/{number}")
        await trio.testing.wait_all_tasks_blocked()
        await client.unsubscribe_resource("lib://book/1")
        server.notify_resource_updated("lib://book/1")
        await trio.testing.wait_all_tasks_blocked()
    assert news == [("notifications/resources/updated", {"uri": "lib://book/1"})]


@pytest.mark.parametrize("mode", MODES)
async def test_prompts_and_their_log_messages(mode: str) -> None:
    heard: list[Any] = []
    async with Client(make_server(), mode=mode, log_level="info", on_log=heard.append) as client:
        (prompt,) = [found async for found in client.iter_prompts()]
        assert prompt.arguments is not None
        assert [(argument.name, argument.required) for argument in prompt.arguments] == [
            ("title", True),
            ("style", False),
        ]
        result = await client.get_prompt("summary", {"title": "Emma", "style": "long"})
        (message,) = result.messages
        assert isinstance(message.content, TextContent)
        assert (message.role, message.content.text) == ("user", "A long summary of Emma")
        with pytest.raises(McpError, match="title"):
            await client.get_prompt("summary")
        with pytest.raises(McpError, match="unknown"):
            await client.get_prompt("unknown")
        await trio.testing.wait_all_tasks_blocked()
    assert [(entry.level, entry.data) for entry in heard] == [("notice", "summing up Emma")]


@pytest.mark.parametrize("mode", MODES)
async def test_completion(mode: str) -> None:
    summary = PromptReference(name="summary")
    scan = ResourceTemplateReference(uri="lib://scan/{number}")
    async with Client(make_server(), mode=mode) as client:
        assert (await client.complete(summary, "style", "l")).completion.values == ["long"]
        found = await client.complete(summary, "title", "E", context={"style": "long"})
        assert found.completion.values == ["Ex", "long"]
        assert (await client.complete(scan, "number", "4")).completion.values == [f"4{digit}" for digit in range(10)]
        with pytest.raises(McpError):
            await client.complete(PromptReference(name="unknown"), "style")


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_without_them_is_not_asked(mode: str) -> None:
    async with Client(Server("bare"), mode=mode) as client:
        for call in (client.list_resources, client.list_prompts):
            with pytest.raises(CapabilityError):
                await call()
        with pytest.raises(CapabilityError):
            await client.complete(PromptReference(name="x"), "y")


@pytest.mark.parametrize("mode", MODES)
async def test_all_calls_take_the_same_limits(mode: str) -> None:
    """The limits of `CallLimits`; a misspelt one is an error, not ignored, and nothing is sent."""
    progress: list[float] = []
    server = make_server()

    @server.resource("lib://slow/{name}")
    async def slow(name: str, ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        return name

    async with Client(server, mode=mode) as client:
        found = await client.read_resource(
            "lib://slow/x", timeout=5, total_timeout=9, on_progress=lambda told: progress.append(told.progress)
        )
        assert [getattr(each, "text", None) for each in found.contents] == ["x"]
        assert progress == [1]
