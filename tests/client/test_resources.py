"""Listing, reading and watching resources (`server/resources`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.client.scripted import scripted, sent
from trio_mcp import CapabilityError, Client, LocalProtocolError, McpError, RemoteProtocolError, RequestTimeout
from trio_mcp.jsonrpc.messages import ErrorData, Notification
from trio_mcp.types.resources import BlobResourceContents, TextResourceContents

REVISIONS = ["2024-11-05", "2025-11-25", "2026-07-28"]


def pages(key: str, *items: list[dict[str, Any]]) -> Callable[[dict[str, Any]], Any]:
    """Return an answer that gives one list per page, with the page's number as the cursor."""

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        number = int(params.get("cursor", 0))
        more = {"nextCursor": str(number + 1)} if number + 1 < len(items) else {}
        return {key: items[number], **more}

    return answer


def resource(number: int) -> dict[str, Any]:
    return {"uri": f"file:///{number}", "name": f"r{number}"}


def template(number: int) -> dict[str, Any]:
    return {"uriTemplate": f"file:///{number}/{{id}}", "name": f"t{number}"}


@pytest.mark.parametrize("revision", REVISIONS)
async def test_lists_page_by_page_and_all_at_once(revision: str) -> None:
    answers = {
        "resources/list": pages("resources", [resource(0), resource(1)], [], [resource(2)]),
        "resources/templates/list": pages("resourceTemplates", [template(0)], [template(1)]),
    }
    async with scripted(answers, revision=revision) as (client, asked, _):
        first = await client.list_resources()
        assert ([found.uri for found in first.resources], first.next_cursor) == (["file:///0", "file:///1"], "1")
        last = await client.list_resources("2")
        assert ([found.name for found in last.resources], last.next_cursor) == (["r2"], None)
        assert [found.name async for found in client.iter_resources()] == ["r0", "r1", "r2"]
        one = await client.list_resource_templates("1")
        assert [found.uri_template for found in one.resource_templates] == ["file:///1/{id}"]
        assert [found.name async for found in client.iter_resource_templates()] == ["t0", "t1"]
    assert [(request.method, sent(request)) for request in asked] == [
        ("resources/list", {}),
        ("resources/list", {"cursor": "2"}),
        ("resources/list", {}),
        ("resources/list", {"cursor": "1"}),
        ("resources/list", {"cursor": "2"}),
        ("resources/templates/list", {"cursor": "1"}),
        ("resources/templates/list", {}),
        ("resources/templates/list", {"cursor": "1"}),
    ]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_contents_of_each_kind(revision: str) -> None:
    contents = [
        {"uri": "file:///a", "mimeType": "text/plain", "text": "grüße"},
        {"uri": "file:///a/b", "blob": "AAE="},
    ]
    async with scripted({"resources/read": {"contents": contents}}, revision=revision) as (client, asked, _):
        text, blob = (await client.read_resource("file:///a")).contents
    assert isinstance(text, TextResourceContents)
    assert (text.uri, text.mime_type, text.text) == ("file:///a", "text/plain", "grüße")
    assert isinstance(blob, BlobResourceContents)
    assert (blob.uri, blob.mime_type, blob.blob) == ("file:///a/b", None, "AAE=")
    assert [sent(request) for request in asked] == [{"uri": "file:///a"}]


async def test_subscriptions_and_their_updates() -> None:
    updates: list[Any] = []
    answers = {"resources/subscribe": {}, "resources/unsubscribe": {}}

    async with scripted(answers, on_message=updates.append) as (client, asked, wire):
        await client.subscribe_resource("file:///a")
        await wire.send(Notification("notifications/resources/updated", {"uri": "file:///a"}))
        await trio.testing.wait_all_tasks_blocked()
        await client.unsubscribe_resource("file:///a")
    assert [(update.method, update.params) for update in updates] == [
        ("notifications/resources/updated", {"uri": "file:///a"})
    ]
    assert [(request.method, request.params) for request in asked] == [
        ("resources/subscribe", {"uri": "file:///a"}),
        ("resources/unsubscribe", {"uri": "file:///a"}),
    ]


async def test_the_modern_era_has_no_such_subscriptions() -> None:
    async with scripted({}, revision="2026-07-28") as (client, asked, _):
        with pytest.raises(LocalProtocolError, match="'resources/subscribe' is not a method of revision 2026-07-28"):
            await client.subscribe_resource("file:///a")
        with pytest.raises(LocalProtocolError, match="'resources/unsubscribe' is not a method of revision 2026-07-28"):
            await client.unsubscribe_resource("file:///a")
    assert asked == []


@pytest.mark.parametrize("revision", REVISIONS)
async def test_without_the_capability_nothing_is_sent(revision: str) -> None:
    async with scripted({}, revision=revision, capabilities={"tools": {}}) as (client, asked, _):
        for method in (client.list_resources, client.list_resource_templates):
            with pytest.raises(CapabilityError, match="server capability 'resources'"):
                await method()
        with pytest.raises(CapabilityError):
            await anext(aiter(client.iter_resources()))
        with pytest.raises(CapabilityError):
            await client.read_resource("file:///a")
    assert asked == []


async def test_resources_alone_are_no_subscriptions() -> None:
    async with scripted({}, capabilities={"resources": {}}) as (client, asked, _):
        with pytest.raises(CapabilityError, match=r"resources\.subscribe"):
            await client.subscribe_resource("file:///a")
    assert asked == []


async def test_refusals_and_malformed_answers_cost_one_call() -> None:
    answers = iter([ErrorData(-32002, "Resource not found", {"uri": "x:/"}), {"contents": [{"uri": "x:/"}]}, {}])
    async with scripted({"resources/read": lambda _: next(answers)}) as (client, _, _wire):
        with pytest.raises(McpError) as refused:
            await client.read_resource("x:/")
        assert (refused.value.code, refused.value.data) == (-32002, {"uri": "x:/"})
        with pytest.raises(RemoteProtocolError, match=r"is not a valid ReadResourceResult: contents\.0"):
            await client.read_resource("x:/")
        with pytest.raises(RemoteProtocolError, match="contents: Field required"):
            await client.read_resource("x:/")


@pytest.mark.parametrize("call", ["read_resource", "subscribe_resource", "unsubscribe_resource"])
async def test_a_uri_is_a_string(call: str) -> None:
    async with scripted({}) as (client, asked, _):
        with pytest.raises(TypeError, match="a URI must be a string, got 7"):
            await getattr(client, call)(7)
    assert asked == []


async def test_timeouts(autojump_clock: Any) -> None:
    async def all_of(client: Client) -> None:
        async for _ in client.iter_resources(timeout=3):
            pass

    async def all_templates_of(client: Client) -> None:
        async for _ in client.iter_resource_templates(timeout=3):
            pass

    calls: list[Callable[[Client], Any]] = [
        lambda client: client.list_resources(timeout=3),
        lambda client: client.list_resource_templates(timeout=3),
        lambda client: client.read_resource("x:/", timeout=3),
        lambda client: client.read_resource("x:/", total_timeout=3),
        lambda client: client.subscribe_resource("x:/", timeout=3),
        lambda client: client.unsubscribe_resource("x:/", timeout=3),
        all_of,
        all_templates_of,
    ]
    async with scripted({}) as (client, _, _wire):
        for call in calls:
            with pytest.raises(RequestTimeout) as caught:
                await call(client)
            assert caught.value.seconds == 3


@pytest.mark.parametrize(
    ("walk", "what"), [("iter_resources", "resources"), ("iter_resource_templates", "resource templates")]
)
async def test_a_list_without_end_is_given_up(walk: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.client.listing.MAX_PAGES", 4)
    endless = {"resources": [], "resourceTemplates": [], "nextCursor": "again"}
    async with scripted({"resources/list": endless, "resources/templates/list": endless}) as (client, asked, _):
        with pytest.raises(RemoteProtocolError, match=f"list of {what} has more than 4 pages"):
            async for _item in getattr(client, walk)():
                pass
    assert len(asked) == 4
