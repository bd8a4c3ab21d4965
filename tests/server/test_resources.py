"""Resources: reading, failures, registration, and directories as resources (`server/resources`)."""

from __future__ import annotations

import base64
import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from tests.server.harness import MODERN, both_eras, client_of, every_revision
from tests.tables import listed
from trio_mcp import Client, Context, McpError, Server
from trio_mcp.server.base_server import core_of
from trio_mcp.server.features.resources import ResourceNotFound, safe_join
from trio_mcp.types import BlobResourceContents, ReadResourceResult, TextResourceContents


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


# --- listing -------------------------------------------------------------------------------------------------------


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
    """A template whose hints refuse the values leaves it to the next."""
    server = Server("test")

    @server.resource("x://{number}")
    def by_number(number: int) -> str:
        return f"number {number}"

    server.add_resource("x://{word}", lambda word: f"word {word}", name="word")
    server.add_resource("x://{+rest}", lambda rest: f"rest {rest}", name="rest")
    server.add_resource("x://a", lambda: "the a", name="a")
    async with client_of(server) as client:
        found = [(await read(client, f"x://{end}"))[0]["text"] for end in ("a", "5", "b", "b/c")]
        assert found == ["the a", "number 5", "word b", "rest b/c"]
        server.remove_resource("x://a")
        server.remove_resource("x://{word}")
        assert (await read(client, "x://a"))[0]["text"] == "rest a"


# --- errors --------------------------------------------------------------------------------------------------------


@every_revision
@pytest.mark.parametrize(
    "uri", ["config://other", "", "no uri", "x" * 9000, "files://%2F", "files://..", "files://\x00"]
)
async def test_not_found_has_the_error_code_of_the_revision(revision: str, uri: str) -> None:
    """`server/resources`, Error Handling: -32002 until 2026-07-28, -32602 since."""
    server = serving("config://app", config)
    server.add_resource("files://{name}", lambda name: name, name="files")
    async with client_of(server, revision) as client:
        error = await refused(client, uri)
    assert error.code == (-32602 if revision == MODERN else -32002)
    assert error.data == {"uri": uri[:8192]}


@pytest.mark.parametrize(
    "value", [None, object(), {"a": {1, object()}}, [lambda: 1], float("nan"), {"x": float("inf")}]
)
async def test_an_unusable_value_is_a_failure(value: Any) -> None:
    with pytest.raises(McpError, match="failed") as caught:
        await contents_of(value)
    assert caught.value.code == -32603


# --- registration --------------------------------------------------------------------------------------------------


def no_parameter() -> str:
    return ""


def one_parameter(a: str) -> str:
    return a


def with_default(a: str = "") -> str:
    return a


@pytest.mark.parametrize(
    ("uri", "function", "problem"),
    [
        ("x://{a}", no_parameter, "no parameter for the variable 'a'"),
        ("x://{a}{?b,c}", one_parameter, "no parameter for the variable 'b', 'c'"),
        ("x://y", one_parameter, "no variable for the parameter 'a'"),
        ("x://{b}", lambda a, b: a, "no variable for the parameter 'a'"),
        ("x://y", with_default, "no variable for the parameter 'a'"),
        ("x://{a}", with_default, "remove the default of the parameter 'a'"),
        ("x://y{?a}", one_parameter, "give a default to the parameter 'a'"),
        ("x://{a}", lambda **a: "", "variadic"),
        ("x://y", "text", "must be a function"),
        (5, config, "must be a string"),
    ],
)
def test_the_function_must_agree_with_the_template(uri: Any, function: Any, problem: str) -> None:
    server = Server("test")
    with pytest.raises(TypeError, match=problem):
        server.add_resource(uri, function, name="n")
    assert not core_of(server).identity.capabilities(MODERN).get("resources")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"uri": "no-scheme"}, "begin with a scheme"),
        ({"uri": "x://{a}{b}"}, "nothing stands between"),
        ({"uri": "x://a b"}, "a URI can't contain"),
        ({"uri": "x://" + "y" * 8192}, "longer than"),
        ({"name": ""}, "not a valid name"),
        ({"function": lambda: ""}, "pass name"),
        ({"size": -1}, "size"),
        ({"uri": "x://{a}", "function": one_parameter, "size": 5}, "a resource template can't have a size"),
    ],
)
def test_an_invalid_resource_is_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Server("test").add_resource(**{"uri": "x://y", "function": config, **arguments})


def test_safe_join_stays_in_the_directory(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "file").write_text("x")
    assert safe_join(root, "in/a.txt") == (root / "in/a.txt").resolve()
    assert safe_join(str(root), "in/../b") == (root / "b").resolve()
    outside = listed("../secret | in/../../secret | /etc/passwd | link | a\0b | .. | file/x")
    for path in (*outside, str(root / "in"), "x" * 5000):
        with pytest.raises(ResourceNotFound):
            safe_join(root, path)


@given(st.text("./a\\\0~é", max_size=12))
def test_safe_join_never_leaves_whatever_the_path(path: str) -> None:
    root = Path("/nowhere/at/all")
    try:
        joined = safe_join(root, path)
    except ResourceNotFound:
        return
    assert joined.is_relative_to(root)
    assert ".." not in joined.parts
