"""Completion of arguments of prompts and of resource templates (`server/utilities/completion`)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytest

from tests.server.harness import both_eras, client_of, every_revision
from trio_mcp import Client, Context, McpError, Server
from trio_mcp.types import CompleteResult, Completion
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS
from trio_mcp.types.versions import at_least

FILES = "files://{+path}"
LANGUAGES = ["python", "pyret", "perl"]


def review(code: str, language: str, framework: str = "", urgent: bool = False) -> str:
    return f"{code} {language} {framework} {urgent}"


def read(path: str) -> str:
    return path


def languages(value: str) -> list[str]:
    return [language for language in LANGUAGES if language.startswith(value)]


def server_with(completer: Callable[..., Any], **options: Any) -> Server:
    """Return a server whose prompt `review` completes `language`."""
    server = Server("test", **options)
    server.add_prompt(review)
    server.add_completion(completer, prompt="review", argument="language")
    return server


def prompt_params(argument: str, value: str = "", prompt: str = "review", **extra: Any) -> dict[str, Any]:
    return {"ref": {"type": "ref/prompt", "name": prompt}, "argument": {"name": argument, "value": value}, **extra}


def resource_params(argument: str, value: str = "", uri: str = FILES, **extra: Any) -> dict[str, Any]:
    return {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": argument, "value": value}, **extra}


async def complete(client: Client, params: dict[str, Any]) -> dict[str, Any]:
    result = await client.request("completion/complete", params)
    assert CompleteResult.from_wire(result).completion.values == result["completion"]["values"]
    found: dict[str, Any] = result["completion"]
    return found


async def refused(client: Client, params: dict[str, Any]) -> McpError:
    with pytest.raises(McpError) as caught:
        await client.request("completion/complete", params)
    return caught.value


async def completed(completer: Callable[..., Any], value: str = "", **options: Any) -> dict[str, Any]:
    """Return a function's suggestions as they look on the wire."""
    async with client_of(server_with(completer, **options)) as client:
        return await complete(client, prompt_params("language", value))


# --- functions -----------------------------------------------------------------------------------------------------


@every_revision
async def test_the_other_arguments_are_told_since_2025_06_18(revision: str) -> None:
    """`context` came with that revision; in older ones it is an unknown field, which is ignored."""
    seen: list[Any] = []

    def frameworks(value: str, arguments: Mapping[str, str], ctx: Context) -> list[str]:
        seen.append((value, arguments, ctx.method))
        return []

    server = server_with(languages)
    server.add_completion(frameworks, prompt="review", argument="framework")
    async with client_of(server, revision) as client:
        for context in ({"arguments": {"language": "python"}}, {}, {"arguments": None}, None):
            await complete(client, prompt_params("framework", "fla", context=context))
        await complete(client, prompt_params("framework", "fla"))
    told = {"language": "python"} if at_least(revision, "2025-06-18") else {}
    assert seen == [("fla", arguments, "completion/complete") for arguments in (told, {}, {}, {}, {})]


@pytest.mark.parametrize(
    ("given_", "wire"),
    [
        (Completion(values=["a"]), {"values": ["a"]}),
        (Completion(values=["a"], total=7, has_more=True), {"values": ["a"], "total": 7, "hasMore": True}),
        (Completion(values=["a"] * 101), {"values": ["a"] * 100, "total": 101, "hasMore": True}),
        (
            Completion(values=["a"] * 101, total=500, has_more=False),
            {"values": ["a"] * 100, "total": 500, "hasMore": True},
        ),
        (Completion(values=["a"] * 101, total=3), {"values": ["a"] * 100, "total": 101, "hasMore": True}),
        (Completion(values=["a"] * 101, has_more=True), {"values": ["a"] * 100, "hasMore": True}),
    ],
)
async def test_a_completion_says_more_than_a_list(given_: Completion, wire: dict[str, Any]) -> None:
    """Its `total` and `hasMore` are kept, unless a list that was cut contradicts them."""
    assert await completed(lambda value: given_) == wire


@pytest.mark.parametrize("value", ["python", None, [1], {"a": "b"}, ["a", None]], ids=repr)
async def test_a_completion_that_is_not_a_list_of_strings_is_an_internal_error(value: Any) -> None:
    async with client_of(server_with(lambda typed: value)) as client:
        assert (await refused(client, prompt_params("language"))).code == INTERNAL_ERROR


# --- without a function --------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"
    DARK_RED = "dark red"
    BLUE = "Blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 12


def paint(
    color: Color,
    size: Size | None = None,
    mode: Literal["fast", 2] | None = None,
    wet: bool = False,
    note: str = "",
    layers: list[Literal["a"]] | None = None,
    tool: Literal["brush"] = "brush",
) -> str:
    return repr((color, size, mode, wet))


@both_eras
@pytest.mark.parametrize(
    ("argument", "typed", "values"),
    [
        ("color", "", ["red", "dark red", "Blue"]),
        ("color", "RE", ["red", "dark red"]),
        ("color", "b", ["Blue"]),
        ("color", "x", []),
        ("size", "", ["1", "12"]),
        ("size", "2", ["12"]),
        ("mode", "", ["fast", "2"]),
        ("wet", "", ["true", "false"]),
        ("wet", "t", ["true"]),
        ("note", "", []),
        ("tool", "", ["brush"]),
        ("layers", "", []),
    ],
)
async def test_types_with_known_values_complete_by_themselves(
    argument: str, typed: str, values: list[str], revision: str
) -> None:
    """First what begins with the text, then what contains it. Arguments of other types have no suggestions."""
    server = Server("test")
    server.add_prompt(paint)
    async with client_of(server, revision) as client:
        found = await complete(client, prompt_params(argument, typed, "paint"))
    assert found == {"values": values, "total": len(values), "hasMore": False}


async def test_a_function_goes_before_the_type() -> None:
    server = Server("test")
    server.add_prompt(paint)
    server.add_completion(lambda value: ["red"], prompt="paint", argument="color")
    async with client_of(server) as client:
        assert (await complete(client, prompt_params("color", "", "paint")))["values"] == ["red"]


# --- requests that can't be answered -------------------------------------------------------------------------------


async def test_an_argument_without_suggestions_has_an_empty_list_and_an_unknown_one_is_refused_by_name() -> None:
    uri = "repo://{owner}/{name}{?page,size}"
    server = server_with(languages)
    server.add_resource(uri, lambda owner, name, page="1", size="2": "", name="repo")
    server.add_completion(languages, resource=uri, argument="page")
    async with client_of(server) as client:
        for params, message in (
            (prompt_params("language", prompt="nothing"), "unknown prompt: 'nothing'"),
            (prompt_params("nothing"), "the prompt 'review' has no argument 'nothing'"),
            (resource_params("path"), "unknown resource template: 'files://{+path}'"),
            (resource_params("path", uri=uri), f"the template {uri!r} has no variable 'path'"),
        ):
            assert (await refused(client, params)).message == message
        for params in (prompt_params("code"), *(resource_params(each, uri=uri) for each in ("owner", "name", "size"))):
            assert await complete(client, params) == {"values": [], "total": 0, "hasMore": False}


# --- registration --------------------------------------------------------------------------------------------------


def test_what_is_refused_at_registration() -> None:
    server = server_with(languages)
    add = server.add_completion
    for wrong in ({}, {"prompt": "review", "resource": FILES}):
        with pytest.raises(TypeError, match=r"pass prompt=… or resource=…"):
            add(languages, argument="code", **wrong)
    with pytest.raises(TypeError, match="a completion must be a function"):
        add(None, prompt="review", argument="code")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the prompt 'review' has no such argument"):
        add(languages, prompt="review", argument="nothing")
    with pytest.raises(ValueError, match=r"the template 'files://\{\+path\}' has no such variable"):
        add(languages, resource=FILES, argument="+path")
    with pytest.raises(ValueError, match="the completion of 'language' for 'review' is already registered"):
        add(languages, prompt="review", argument="language")

    def needs_an_int(value: int) -> list[str]:
        return []

    def needs_three(value: str, arguments: dict[str, str], more: str) -> list[str]:
        return []

    def takes_nothing() -> list[str]:
        return []

    for function in (takes_nothing, needs_an_int, needs_three):
        with pytest.raises(TypeError, match="the function must take the text so far, a str"):
            add(function, prompt="review", argument="code")
    assert server.statistics().completions == 1


async def test_the_completions_of_a_prompt_go_with_it() -> None:
    """The prompt may be added again with other completions, and a completion may be added before its prompt."""
    server = server_with(languages)
    server.remove_prompt("review")
    server.add_completion(lambda value: ["new"], prompt="review", argument="language")
    server.add_prompt(review)
    async with client_of(server) as client:
        assert (await complete(client, prompt_params("language")))["values"] == ["new"]


async def test_the_completions_of_a_template_go_with_it() -> None:
    """A completion may be there before its template; without the template, there is nothing to complete (-32602)."""
    server = Server("test")
    server.add_completion(lambda value: ["old"], resource=FILES, argument="path")
    async with client_of(server) as client:
        assert (await refused(client, resource_params("path"))).code == INVALID_PARAMS
        server.add_resource(FILES, read)
        assert (await complete(client, resource_params("path")))["values"] == ["old"]
        server.remove_resource(FILES)
        assert (await refused(client, resource_params("path"))).code == INVALID_PARAMS
        server.add_resource(FILES, read)
        assert (await complete(client, resource_params("path")))["values"] == []
    with pytest.raises(ValueError, match="nothing stands between"):
        server.add_completion(languages, resource="files://{a}{b}", argument="a")
