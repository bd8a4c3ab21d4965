"""`Client(extensions=[…])`: what an extension of the client adds, and what is refused (`basic/versioning`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from tests.client.listening import ACKNOWLEDGED, end, notice
from tests.client.scripted import scripted, sent
from tests.http_peer import DISCOVERED, giving, peer
from tests.peer import settle
from trio_mcp import CallOptions, Client, ClientGroup, LocalProtocolError, RemoteProtocolError, Server, SessionOptions
from trio_mcp.extensions import ClientAccess, ClientExtension, Finisher
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.types import meta

MODERN, LEGACY = "2026-07-28", "2025-11-25"
ID = "com.example/feature"
DONE: dict[str, Any] = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}


async def finish(client: Any, method: str, params: dict[str, Any], result: dict[str, Any], limits: Any) -> Any:
    return DONE


def nothing(client: Any, notification: Notification) -> None:
    pass


def extension(identifier: str = ID, **attributes: Any) -> ClientExtension:
    """Return an object of a class with these attributes."""
    return type("Extension", (ClientExtension,), {"identifier": identifier, **attributes})()  # type: ignore[no-any-return]


def in_modern(self: object, revision: str) -> dict[str, Any] | None:
    return {"level": 3} if revision == MODERN else None


# --- what is declared ---------------------------------------------------------------------------------------------


class Both:
    """An extension for both sides."""

    client_side = extension(settings=in_modern)


@pytest.mark.parametrize(
    "given",
    [
        {"extensions": [extension(settings=lambda self, revision: {"level": 3})]},
        {"extensions": [Both()]},
        {"extensions": {ID: {"level": 3}}},
        {"extensions": (), "client_capabilities": {"extensions": {ID: {"level": 3}}}},
    ],
)
async def test_an_extension_is_declared_in_each_request(given: Any) -> None:
    """In whichever form it is given."""
    async with scripted({"tools/call": DONE}, revision=MODERN, capabilities={"tools": {}}, **given) as (
        client,
        asked,
        _,
    ):
        await client.call_tool("x")
    assert (asked[0].params or {})["_meta"][meta.CLIENT_CAPABILITIES]["extensions"] == {ID: {"level": 3}}


async def test_an_extension_without_settings_in_a_revision_adds_nothing_there() -> None:
    """Not even a name: in 2025-11-25, tasks/get is a method of the core protocol."""
    each = extension(settings=in_modern, methods={"tasks/get": None})
    async with scripted({}, revision=LEGACY, extensions=[each]) as (client, _, wire):
        assert wire.opening is not None
        assert "extensions" not in (wire.opening.params or {})["capabilities"]
        with pytest.raises(LocalProtocolError, match="tasks"):
            await client.request("tasks/get", {"taskId": "1"})


def test_settings_are_copied() -> None:
    settings: dict[str, Any] = {"a": []}
    each = extension(settings=lambda self, revision: settings)
    client = Client("http://localhost/mcp", extensions=[each])
    settings["a"].append(1)
    extensions = client._connection.extensions  # noqa: SLF001
    assert extensions is not None
    assert extensions.settings_in(MODERN) == {ID: {"a": []}}


# --- what is refused ----------------------------------------------------------------------------------------------

OTHER = "com.example/other"
TWICE: list[tuple[dict[str, Any], str]] = [
    ({"methods": {"x/get": None}}, "can't add the method 'x/get': 'com.example/other' has added it"),
    ({"notifications": {"notifications/x": nothing}}, "can't add the notification 'notifications/x'"),
    ({"result_types": {"x": Finisher(["tools/call"], finish)}}, "can't add the result type 'x'"),
    (
        {"notifications": {}, "filters": {"x": []}},
        "can't add the filter 'x'",
    ),
]
REFUSED: list[tuple[Any, str]] = [
    *(([extension(OTHER, **added), extension(**added)], text) for added, text in TWICE),
    ([extension(), extension()], "'com.example/feature' is given twice"),
    ([extension(methods={"tools/call": None})], "the method 'tools/call' of the core protocol"),
    ([extension(methods={"tasks/get": None})], "the method 'tasks/get' of the core protocol"),
    ([extension(notifications={"notifications/message": nothing})], "of the core protocol"),
    ([extension(filters={"toolsListChanged": ()})], "the filter 'toolsListChanged' of the core protocol"),
    ([extension(filters={"x": ["notifications/x"]})], "must name notifications of that extension"),
    ([extension(result_types={"input_required": Finisher(["tools/call"], finish)})], "of the core protocol"),
    ([extension(result_types={"x": Finisher(["tools/list"], finish)})], "can only be that of"),
    ([extension(requires=[OTHER])], f"'{ID}' requires the extension '{OTHER}'"),
    ([extension("feature")], "not a valid extension identifier"),
    ([extension("")], "not a valid extension identifier"),
]
WRONG_TYPES: list[tuple[Any, str]] = [
    ("com.example/feature", "a list of extensions"),
    ([ClientExtension], r"write ClientExtension\(\)"),
    ([object()], "must be a ClientExtension"),
    ([extension(result_types={"x": finish})], "needs a Finisher"),
    ([extension(methods={"x/get": 1})], "the name of a parameter or None"),
    ([extension(notifications={"notifications/x": 1})], "must be callable"),
    ([extension(middleware=1)], "must be callable"),
    ({ID: 1}, "must be a mapping"),
]


@pytest.mark.parametrize(("given", "text"), REFUSED)
def test_a_name_that_is_taken_and_a_missing_extension_are_refused(given: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Client("http://localhost/mcp", extensions=given)


@pytest.mark.parametrize(("given", "text"), WRONG_TYPES)
def test_what_is_not_an_extension_is_refused(given: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        Client("http://localhost/mcp", extensions=given)


def test_an_extension_is_refused_that_is_among_the_capabilities_too() -> None:
    with pytest.raises(ValueError, match="given twice"):
        Client("http://localhost/mcp", extensions=[extension()], capabilities={"extensions": {ID: {}}})
    with pytest.raises(ValueError, match="given twice"):
        Client("http://localhost/mcp", extensions={ID: {}}, capabilities={"extensions": {ID: {}}})
    options = SessionOptions(calls=CallOptions(result_types={"x"}))
    with pytest.raises(ValueError, match="result type 'x'"):
        Client(
            "http://localhost/mcp",
            options=options,
            extensions=[extension(result_types={"x": Finisher(["tools/call"], finish)})],
        )


def test_a_refused_client_attaches_nothing_and_the_order_of_requirements_does_not_matter() -> None:
    attached: list[object] = []
    each = extension(attach=lambda self, client, access: attached.append(client), requires=[OTHER])
    with pytest.raises(ValueError, match="requires"):
        Client("http://localhost/mcp", extensions=[each])
    with pytest.raises(ValueError, match="log level"):
        Client("http://localhost/mcp", extensions=[each, extension(OTHER)], log_level="loud")  # type: ignore[arg-type]
    assert attached == []
    client = Client("http://localhost/mcp", extensions=[each, extension(OTHER)])
    assert attached == [client]


# --- methods ------------------------------------------------------------------------------------------------------


async def test_a_method_of_an_extension_may_be_sent() -> None:
    """Also one that an earlier revision has; but only with the extension."""
    each = extension(settings=in_modern, methods={"tasks/get": None})
    replies = {"tasks/get": {"resultType": "complete", "a": 1}}
    async with scripted(replies, revision=MODERN, extensions=[each]) as (client, asked, _):
        assert (await client.request("tasks/get", {"taskId": "1"}))["a"] == 1
        with pytest.raises(LocalProtocolError, match="'tasks/list' is not a method"):
            await client.request("tasks/list")
    assert sent(asked[0]) == {"taskId": "1"}
    async with scripted(replies, revision=MODERN) as (client, _, _):
        with pytest.raises(LocalProtocolError, match="'tasks/get' is not a method"):
            await client.request("tasks/get", {"taskId": "1"})


async def test_the_name_header_repeats_the_parameter_that_the_extension_names() -> None:
    """Standard Request Headers: encoded as other names are; and only for the client with that extension."""
    each = extension(methods={"x/get": "id", "x/plain": None})
    answer = giving({"resultType": "complete"})
    handlers = {"server/discover": giving(DISCOVERED), "x/get": answer, "x/plain": answer}
    async with peer(handlers) as server:
        async with Client(server.url, extensions=[each]) as client:
            await client.request("x/get", {"id": "7"})
            await client.request("x/get", {"id": "ä"})
            await client.request("x/get", {"id": 7})
            await client.request("x/plain", {"id": "7"})
        async with Client(server.url) as client:
            await client.request("x/get", {"id": "7"})
    names = [asked.headers.get("mcp-name") for asked in server.asked if asked.rpc.startswith("x/")]
    assert names == ["7", "=?base64?w6Q=?=", None, None, None]


# --- result types -------------------------------------------------------------------------------------------------


async def test_a_result_of_an_added_type_is_finished_by_the_extension() -> None:
    seen: list[Any] = []

    async def finishes(client: Any, method: str, params: dict[str, Any], result: dict[str, Any], limits: Any) -> Any:
        seen.append((client, method, params, result, dict(limits)))
        return DONE

    each = extension(result_types={"later": Finisher(["tools/call"], finishes)})
    later = {"resultType": "later", "ticket": "1"}
    settings: dict[str, Any] = {"revision": MODERN, "capabilities": {"tools": {}}, "extensions": [each]}
    async with scripted({"tools/call": later}, **settings) as (client, _, _):
        assert (await client.call_tool("x", {"a": 1}, timeout=3)).text == "done"
        assert (await client.call_tool_once("x")).text == "done"  # type: ignore[union-attr]
    params = {"name": "x", "arguments": {"a": 1}}
    assert seen[0] == (client, "tools/call", params, later, {"timeout": 3, "total_timeout": None})
    assert len(seen) == 2


@pytest.mark.parametrize("kind", ["later", "input_required", "other"])
async def test_a_finished_result_is_complete(kind: str) -> None:
    async def finishes(*given: Any) -> Any:
        return {**DONE, "resultType": kind}

    each = extension(result_types={"later": Finisher(["tools/call"], finishes)})
    settings: dict[str, Any] = {"revision": MODERN, "capabilities": {"tools": {}}, "extensions": [each]}
    async with scripted({"tools/call": {"resultType": "later"}}, **settings) as (client, _, _):
        with pytest.raises(RemoteProtocolError, match="the final result"):
            await client.call_tool("x")


@pytest.mark.parametrize(
    ("method", "call", "arguments"),
    [("resources/read", "read_resource", ("a://b",)), ("tools/list", "list_tools", ()), ("x/y", "request", ("x/y",))],
)
async def test_a_result_of_an_added_type_is_refused_for_other_methods(method: str, call: str, arguments: Any) -> None:
    each = extension(result_types={"later": Finisher(["tools/call"], finish)})
    replies = {method: {"resultType": "later", "tools": [], "contents": []}}
    capabilities: dict[str, Any] = {"tools": {}, "resources": {}}
    settings: dict[str, Any] = {"revision": MODERN, "capabilities": capabilities, "extensions": [each]}
    async with scripted(replies, **settings) as (client, _, _):
        with pytest.raises(RemoteProtocolError, match="must not have the resultType 'later'"):
            await getattr(client, call)(*arguments)


# --- notifications ------------------------------------------------------------------------------------------------


async def test_notifications_go_to_their_function_and_a_fault_in_it_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Any] = []
    faults: list[str] = []

    def sync(client: Any, notification: Notification) -> None:
        seen.append((client, notification.params))
        if notification.params is None:
            raise RemoteProtocolError("no parameters")

    async def broken(client: Any, notification: Notification) -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("x")

    each = extension(notifications={"notifications/x": sync, "notifications/y": broken})
    options = SessionOptions(on_error=lambda error: faults.append(str(error)))
    async with scripted({}, revision=MODERN, extensions=[each], options=options) as (client, _, wire):
        for method, params in (("x", None), ("y", None), ("z", None), ("x", {"a": 1})):
            await wire.notify(f"notifications/{method}", params)
        await settle()
    assert seen == [(client, None), (client, {"a": 1})]
    assert faults == ["no parameters"]
    assert "KeyError: 'x'" in caplog.text


async def test_a_filter_asks_for_notifications_and_outside_of_a_subscription_they_are_faults() -> None:
    accesses: list[ClientAccess] = []
    faults: list[str] = []
    each = extension(
        notifications={"notifications/x": nothing},
        filters={"xIds": ["notifications/x"], "xAll": ["notifications/x"]},
        attach=lambda self, client, access: accesses.append(access),
    )
    options = SessionOptions(on_error=lambda error: faults.append(str(error)))
    async with (
        scripted({}, revision=MODERN, extensions=[each], options=options) as (_, asked, wire),
        trio.open_nursery() as nursery,
    ):

        async def listens() -> None:
            filters = {"xIds": ["1", "2"], "xAll": True}
            async with accesses[0].listen(filters) as subscription:
                assert subscription.honored.to_wire() == {"xIds": ["2"]}
                with pytest.raises(StopAsyncIteration):
                    await anext(subscription)

        nursery.start_soon(listens)
        await settle()
        (request,) = asked
        assert sent(request) == {"notifications": {"xIds": ["1", "2"], "xAll": True}}
        await wire.send(notice("notifications/x"))
        await wire.send(notice("notifications/x", request.id))
        await wire.send(notice(ACKNOWLEDGED, request.id, notifications={"xIds": ["2", "3"]}))
        await wire.send(notice("notifications/x", request.id))
        await settle()
        await wire.respond(request, end(request))
    assert ["belongs to no" in faults[0], "before" in faults[1], len(faults)] == [True, True, 2]
    async with scripted({}, revision=LEGACY, extensions=[each]):
        with pytest.raises(LocalProtocolError, match="no filter for 'xIds'"):
            accesses[1].listen({"xIds": ["1"]})


# --- middleware and run -------------------------------------------------------------------------------------------


async def test_the_middleware_of_extensions_stands_outside_unless_it_is_placed() -> None:
    order: list[str] = []

    def noting(name: str) -> Any:
        async def middleware(call: Any, call_next: Any) -> Any:
            order.append(name)
            return await call_next()

        return middleware

    first, second, placed = noting("first"), noting("second"), noting("placed")
    extensions = [
        extension("a.example/a", middleware=staticmethod(first)),
        extension("a.example/b", middleware=staticmethod(placed)),
        extension("a.example/c", middleware=staticmethod(second)),
    ]
    settings: dict[str, Any] = {"extensions": extensions, "middleware": [noting("own"), placed]}
    async with scripted({"x/y": {}}, **settings) as (client, _, _):
        await client.request("x/y")
    assert order == ["first", "second", "own", "placed"]


async def test_run_runs_while_the_client_is_connected(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    async def run(self: object, client: Client) -> None:
        seen.append(client.protocol_version)
        try:
            await trio.sleep_forever()
        finally:
            seen.append("ended")

    async def fails(self: object, client: Client) -> None:
        raise KeyError("x")

    extensions = [extension(run=run), extension(OTHER, run=fails)]
    async with scripted({"x/y": {}}, extensions=extensions) as (client, _, _):
        await settle()
        assert seen == [LEGACY]
        assert await client.request("x/y") == {}
    assert seen == [LEGACY, "ended"]
    assert "the task of an extension failed" in caplog.text
    assert all(record.levelno < logging.CRITICAL for record in caplog.records)


async def test_the_clients_of_a_group_share_an_extension() -> None:
    attached: list[Any] = []
    each = extension(attach=lambda self, client, access: attached.append(client))
    servers: Mapping[str, Any] = {"a": Server("a"), "b": Server("b")}
    async with ClientGroup(servers, extensions=[each]) as group:
        assert {id(client) for client in group.clients.values()} <= {id(client) for client in attached}
