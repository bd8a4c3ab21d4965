"""Resources are listed and read, in every revision (`server/resources`)."""

from __future__ import annotations

import base64
import datetime
import threading
from typing import Any

import attrs
import pytest
from pydantic import BaseModel

from tests.server.harness import LEGACY, MODERN, both_eras, client_of, every_revision
from trio_mcp import Client, Context, ListOptions, McpError, Server
from trio_mcp.types import BlobResourceContents, ReadResourceResult, TextResourceContents
from trio_mcp.types.methods import method_spec


def config() -> str:
    """How the app is set up."""
    return "debug = true"


def serving(uri: str, function: Any, **details: Any) -> Server:
    server = Server("test")
    server.add_resource(uri, function, **details)
    return server


async def read(client: Client, uri: str) -> list[dict[str, Any]]:
    result = await client.request("resources/read", {"uri": uri})
    contents: list[dict[str, Any]] = result["contents"]
    return contents


async def contents_of(value: Any, revision: str = MODERN, **details: Any) -> list[dict[str, Any]]:
    """Return what a client reads if a resource's function returns a value."""
    async with client_of(serving("x://y", lambda: value, name="y", **details), revision) as client:
        return await read(client, "x://y")


async def refused(client: Client, uri: Any, method: str = "resources/read") -> McpError:
    with pytest.raises(McpError) as caught:
        await client.request(method, {"uri": uri})
    return caught.value


def check_hints(revision: str, method: str, result: dict[str, Any]) -> None:
    """2026-07-28 `server/utilities/caching`: required there, unknown before."""
    spec = method_spec(revision, method)
    assert spec is not None
    assert spec.cacheable is (revision == MODERN)
    hints = {key: value for key, value in result.items() if key in ("ttlMs", "cacheScope")}
    assert hints == ({"ttlMs": 0, "cacheScope": "private"} if spec.cacheable else {})


# --- listing -------------------------------------------------------------------------------------------------------


@every_revision
async def test_what_is_listed(revision: str) -> None:
    """Each revision gets the fields that it knows."""
    server = Server("test")
    details: dict[str, Any] = {
        "title": "T",
        "mime_type": "text/plain",
        "annotations": {"priority": 1},
        "meta": {"a/b": 1},
    }
    server.add_resource("config://app", config, size=12, **details)

    @server.resource("files://{+path}", name="files", description="All of them.", **details)
    def find(path: str) -> str:
        return path

    single: dict[str, Any] = {
        "uri": "config://app",
        "name": "config",
        "description": "How the app is set up.",
        "size": 12,
    }
    template = {"uriTemplate": "files://{+path}", "name": "files", "description": "All of them."}
    common: dict[str, Any] = {"mimeType": "text/plain", "annotations": {"priority": 1}}
    if revision >= "2025-06-18":
        common |= {"title": "T", "_meta": {"a/b": 1}}
    async with client_of(server, revision) as client:
        result = await client.request("resources/list")
        assert result["resources"] == [single | common]
        check_hints(revision, "resources/list", result)
        result = await client.request("resources/templates/list")
        assert result["resourceTemplates"] == [template | common]
        check_hints(revision, "resources/templates/list", result)
        result = await client.request("resources/read", {"uri": "config://app"})
        check_hints(revision, "resources/read", result)
    assert find("x") == "x"


@both_eras
async def test_both_lists_come_in_pages(revision: str) -> None:
    server = Server("test", lists=ListOptions(page_size=2))
    for number in range(5):
        server.add_resource(f"x://{number}", config)
        server.add_resource(f"x://{number}/{{a}}", lambda a: a, name="t")
    async with client_of(server, revision) as client:
        for method, key, field in (
            ("resources/list", "resources", "uri"),
            ("resources/templates/list", "resourceTemplates", "uriTemplate"),
        ):
            found: list[str] = []
            page = await client.request(method)
            while True:
                assert len(page[key]) <= 2
                found += [each[field][:5] for each in page[key]]
                if "nextCursor" not in page:
                    break
                page = await client.request(method, {"cursor": page["nextCursor"]})
            assert found == [f"x://{number}" for number in range(5)]
        with pytest.raises(McpError, match="invalid cursor") as caught:
            await client.request("resources/list", {"cursor": "x"})
        assert caught.value.code == -32602


@pytest.mark.parametrize("uri", ["config://app", "x://{a}"])
async def test_a_uri_is_taken_once(uri: str) -> None:
    server = Server("test")
    function = config if "{" not in uri else lambda a: a
    server.add_resource(uri, function, name="n")
    with pytest.raises(ValueError, match="already"):
        server.add_resource(uri, function, name="n")
    server.remove_resource(uri)
    with pytest.raises(KeyError, match="no resource"):
        server.remove_resource(uri)
    server.add_resource(uri, function, name="n")


# --- reading -------------------------------------------------------------------------------------------------------


@attrs.define
class Point:
    x: int


class Model(BaseModel):
    when: datetime.date


@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("text ü", {"text": "text ü"}),
        ("", {"text": ""}),
        ("\ud800", {"text": "\\ud800"}),
        (b"\x00\xff", {"blob": base64.b64encode(b"\x00\xff").decode()}),
        (bytearray(b"x"), {"blob": "eA=="}),
        (memoryview(b"x"), {"blob": "eA=="}),
        ({"a": [1, None]}, {"mimeType": "application/json", "text": '{"a":[1,null]}'}),
        (["a", "b"], {"mimeType": "application/json", "text": '["a","b"]'}),
        ([], {"mimeType": "application/json", "text": "[]"}),
        (5, {"mimeType": "application/json", "text": "5"}),
        ({"ü": "\ud800"}, {"mimeType": "application/json", "text": '{"ü":"\\ud800"}'}),
        (Model(when="2026-07-28"), {"mimeType": "application/json", "text": '{"when":"2026-07-28"}'}),  # type: ignore[arg-type]
    ],
)
@both_eras
async def test_what_a_value_becomes(value: Any, contents: dict[str, Any], revision: str) -> None:
    assert await contents_of(value, revision) == [{"uri": "x://y", **contents}]
    assert await contents_of(value, revision, mime_type="a/b") == [{"uri": "x://y", **contents, "mimeType": "a/b"}]


@both_eras
async def test_contents_go_as_they_are_alone_and_in_lists(revision: str) -> None:
    text = TextResourceContents(uri="x://1", text="one", mime_type="text/x")
    blob = BlobResourceContents(uri="x://2", blob="eA==")
    wire = [{"uri": "x://1", "text": "one", "mimeType": "text/x"}, {"uri": "x://2", "blob": "eA=="}]
    assert await contents_of(text, revision) == wire[:1]
    assert await contents_of(blob, revision) == wire[1:]
    assert await contents_of([text, blob, "more"], revision) == [*wire, {"uri": "x://y", "text": "more"}]
    assert await contents_of((text, blob), revision) == wire
    assert await contents_of(ReadResourceResult(contents=[text, blob]), revision) == wire
    assert await contents_of(ReadResourceResult(contents=[]), revision) == []


@every_revision
async def test_contents_have_the_fields_of_the_revision(revision: str) -> None:
    (contents,) = await contents_of(TextResourceContents(uri="x://1", text="", meta={"k": 1}), revision)
    assert ("_meta" in contents) == (revision >= "2025-06-18")


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_result_may_say_how_long_it_keeps(revision: str) -> None:
    """2026-07-28 `server/utilities/caching`; older revisions know nothing of it."""
    result = ReadResourceResult(contents=[], ttl_ms=5000, cache_scope="public")
    async with client_of(serving("x://y", lambda: result, name="y"), revision) as client:
        wire = await client.request("resources/read", {"uri": "x://y"})
    hints = {key: value for key, value in wire.items() if key in ("ttlMs", "cacheScope")}
    assert hints == ({"ttlMs": 5000, "cacheScope": "public"} if revision == MODERN else {})


@both_eras
async def test_variables_become_arguments_as_the_hints_say(revision: str) -> None:
    server = Server("test")

    @server.resource("db://{table}/{row}{?columns,limit,others*}")
    async def row(
        ctx: Context, table: str, row: int, others: dict[str, str], columns: str = "*", limit: int = 10
    ) -> list[Any]:
        return [ctx.method, table, row, columns, limit, others]

    async with client_of(server, revision) as client:
        (contents,) = await read(client, "db://a%20b/7")
        assert contents["text"] == '["resources/read","a b",7,"*",10,{}]'
        assert contents["uri"] == "db://a%20b/7"
        (contents,) = await read(client, "db://t/7?limit=3&z=%2F&columns=x,y")
        assert contents["text"] == '["resources/read","t",7,"x,y",3,{"z":"/"}]'
        for uri in ("db://t/seven", "db://t/7?limit=x", "db://t/7/8", "db://t", "db://%2e%2e/7"):
            assert (await refused(client, uri)).message == "Resource not found"


async def test_an_exact_uri_comes_before_templates_and_templates_in_their_order() -> None:
    server = Server("test")
    server.add_resource("x://{word}", lambda word: f"word {word}", name="word")
    server.add_resource("x://{+rest}", lambda rest: f"rest {rest}", name="rest")
    server.add_resource("x://a", lambda: "the a", name="a")
    async with client_of(server) as client:
        assert [(await read(client, f"x://{end}"))[0]["text"] for end in ("a", "b", "b/c")] == [
            "the a",
            "word b",
            "rest b/c",
        ]
        server.remove_resource("x://a")
        server.remove_resource("x://{word}")
        assert (await read(client, "x://a"))[0]["text"] == "rest a"


async def test_a_template_whose_hints_refuse_leaves_it_to_the_next() -> None:
    server = Server("test")

    @server.resource("x://{number}")
    def by_number(number: int) -> str:
        return f"number {number}"

    @server.resource("x://{name}")
    def by_name(name: str) -> str:
        return f"name {name}"

    async with client_of(server) as client:
        assert (await read(client, "x://5"))[0]["text"] == "number 5"
        assert (await read(client, "x://five"))[0]["text"] == "name five"


async def test_a_sync_function_runs_in_a_thread_and_an_async_one_does_not() -> None:
    server = Server("test")
    server.add_resource("x://sync", lambda: threading.get_ident(), name="sync")

    @server.resource("x://async")
    async def here() -> int:
        return threading.get_ident()

    async with client_of(server) as client:
        assert (await read(client, "x://sync"))[0]["text"] != str(threading.get_ident())
        assert (await read(client, "x://async"))[0]["text"] == str(threading.get_ident())


async def test_middleware_surrounds_reading() -> None:
    seen: list[Any] = []

    async def watch(context: Context, call_next: Any) -> Any:
        result = await call_next()
        seen.append((context.method, context.params.get("uri")))
        if len(seen) == 2:  # the first list
            result["resources"].clear()
            result["resources"].append({"uri": "x://z", "name": "z"})
        return result

    server = Server("test", middleware=[watch])
    server.add_resource("config://app", config)
    async with client_of(server) as client:
        await read(client, "config://app")
        assert (await client.request("resources/list"))["resources"] == [{"uri": "x://z", "name": "z"}]
        (listed,) = (await client.request("resources/list"))["resources"]
        assert listed["uri"] == "config://app", "what a middleware changes the next client does not see"
    assert seen[:2] == [("resources/read", "config://app"), ("resources/list", None)]


# --- capabilities --------------------------------------------------------------------------------------------------


@every_revision
async def test_resources_are_declared_if_there_are_or_ever_were_any(revision: str) -> None:
    server = Server("test")
    async with client_of(server, revision) as client:
        assert client.capabilities.resources is None
    server.add_resource("config://app", config)
    server.remove_resource("config://app")
    async with client_of(server, revision) as client:
        declared = client.session.server.capabilities["resources"]
        assert declared == {"listChanged": True, "subscribe": True}
        assert (await client.request("resources/list"))["resources"] == []
