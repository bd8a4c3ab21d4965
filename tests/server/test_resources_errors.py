"""What can't be read, and what can't be offered (`server/resources`, Error Handling)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.harness import MODERN, client_of, every_revision
from tests.server.test_resources import config, contents_of, refused, serving
from trio_mcp import McpError, Server

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
    assert not server.identity.capabilities(MODERN).get("resources")


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
        ({"uri": "x://{a}", "function": one_parameter, "size": 5}, "only a single resource"),
    ],
)
def test_an_invalid_resource_is_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Server("test").add_resource(**{"uri": "x://y", "function": config, **arguments})
