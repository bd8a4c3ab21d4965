"""Many servers as one: lists, names, routing, and errors that say whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio

from tests.client.servers import make_server
from trio_mcp import (
    ClientGroup,
    Listed,
    ListOptions,
    LocalProtocolError,
    McpError,
    RequestTimeout,
    Server,
    SessionClosed,
    UnknownTool,
)
from trio_mcp.client.group import catalog
from trio_mcp.types import PromptReference, ResourceTemplateReference
from trio_mcp.uri_templates import UriTemplate

ERAS = ("legacy", "2026-07-28")


def desk(place: str) -> Server:
    """Return a server with one of everything."""
    server = Server(place, lists=ListOptions(page_size=1))

    @server.tool
    async def where() -> str:
        return place

    @server.tool(name="odd.name")
    async def odd() -> str:
        return f"odd {place}"

    @server.prompt
    async def ask(about: str) -> str:
        return f"{place}: {about}"

    @server.completion(prompt="ask", argument="about")
    async def subjects(typed: str) -> list[str]:
        return [f"{typed} in {place}"]

    @server.resource("desk://common")
    async def common() -> str:
        return place

    @server.resource(f"desk://{place}/all")
    async def own() -> str:
        return f"all of {place}"

    @server.resource(f"desk://{place}/{{name}}")
    async def note(name: str) -> str:
        return f"{name} of {place}"

    @server.completion(resource=f"desk://{place}/{{name}}", argument="name")
    async def names(typed: str) -> list[str]:
        return [f"{typed} at {place}"]

    return server


def text(result: Any) -> str:
    [contents] = result.contents
    return str(contents.text)


@pytest.mark.parametrize("mode", ERAS)
async def test_tools_of_all_servers_are_listed_and_called_by_one_name_each(mode: str) -> None:
    async with ClientGroup({"a": desk("north"), "b": desk("south")}, mode=mode) as group:
        tools = await group.list_tools()
        assert tools.errors == {}
        assert [group.split(tool.name) for tool in tools] == [
            (server, tool) for server in ("a", "b") for tool in ("where", "odd.name")
        ]
        assert len(tools) == 4
        for tool in tools:
            place = {"a": "north", "b": "south"}[group.split(tool.name)[0]]
            assert (await group.call_tool(tool.name)).data in (place, f"odd {place}")
        assert {name: client.protocol_version for name, client in group.clients.items()} == {
            "a": group.clients["b"].protocol_version,
            "b": group.clients["b"].protocol_version,
        }


async def test_a_shortened_name_works_before_it_was_listed_here() -> None:
    async with ClientGroup({"a": desk("north"), "b": desk("south")}) as group:
        name = group.join("b", "odd.name")
    async with ClientGroup({"a": desk("north"), "b": desk("south")}) as later:
        assert (await later.call_tool(name)).data == "odd south"


@pytest.mark.parametrize("mode", ERAS)
async def test_prompts_and_their_completion(mode: str) -> None:
    async with ClientGroup({"a": desk("north"), "b": desk("south")}, mode=mode) as group:
        assert [prompt.name for prompt in await group.list_prompts()] == ["a__ask", "b__ask"]
        filled = await group.get_prompt("b__ask", {"about": "tea"})
        assert filled.messages[0].content.text == "south: tea"  # type: ignore[union-attr]
        found = await group.complete(PromptReference(name="b__ask"), "about", "tea")
        assert found.completion.values == ["tea in south"]


@pytest.mark.parametrize("mode", ERAS)
async def test_resources_are_read_from_the_server_that_has_them(mode: str) -> None:
    async with ClientGroup({"a": desk("north"), "b": desk("south"), "c": make_server()}, mode=mode) as group:
        resources = await group.list_resources()
        assert {server: [each.uri for each in found] for server, found in resources.by_server.items()} == {
            "a": ["desk://common", "desk://north/all"],
            "b": ["desk://common", "desk://south/all"],
            "c": [],
        }
        templates = await group.list_resource_templates()
        assert [each.uri_template for each in templates] == ["desk://north/{name}", "desk://south/{name}"]
        assert text(await group.read_resource("desk://south/all")) == "all of south"
        assert text(await group.read_resource("desk://south/tea")) == "tea of south"
        with pytest.raises(
            LocalProtocolError, match=r"'a' and 'b' all have 'desk://common'; choose one with server='a'"
        ):
            await group.read_resource("desk://common")
        assert text(await group.read_resource("desk://common", server="b")) == "south"
        with pytest.raises(McpError, match="no server of the group lists 'desk://west/x'"):
            await group.read_resource("desk://west/x")


async def test_a_resource_is_found_without_a_list_and_after_a_change() -> None:
    server = desk("north")
    async with ClientGroup({"a": server, "b": desk("south")}) as group:
        assert text(await group.read_resource("desk://north/tea")) == "tea of north"

        @server.resource("new://x")
        async def new() -> str:
            return "new"

        assert text(await group.read_resource("new://x")) == "new"


async def test_what_is_listed_counts_more_than_a_template_also_after_a_change() -> None:
    general, special = Server("general"), desk("special")

    @general.resource("x://{name}")
    async def anything(name: str) -> str:
        return "general"

    async with ClientGroup({"general": general, "special": special}, mode="legacy") as group:
        assert text(await group.read_resource("x://y")) == "general"

        @special.resource("x://y")
        async def this() -> str:
            return "special"

        await trio.testing.wait_all_tasks_blocked()  # until the notice has arrived
        assert text(await group.read_resource("x://y")) == "special"
        assert text(await group.read_resource("x://y", server="general")) == "general"


async def test_completion_of_a_template_goes_to_the_server_that_has_it() -> None:
    async with ClientGroup({"a": desk("north"), "b": desk("south")}) as group:
        found = await group.complete(ResourceTemplateReference(uri="desk://south/{name}"), "name", "n")
        assert found.completion.values == ["n at south"]
        with pytest.raises(McpError, match="no server of the group"):
            await group.complete(ResourceTemplateReference(uri="y://{name}"), "name")
        with pytest.raises(TypeError, match="ref must be"):
            await group.complete("x", "name")  # type: ignore[arg-type]


async def test_errors_of_a_server_keep_their_type_and_name_the_server(autojump_clock: trio.testing.MockClock) -> None:
    async with ClientGroup({"a": make_server(), "b": make_server()}) as group:
        await group.list_tools()
        with pytest.raises(UnknownTool, match=r"server 'b': .*did you mean 'b__greet'") as refused:
            await group.call_tool("b__great")
        assert (refused.value.server, refused.value.code) == ("b", -32602)
        assert (refused.value.name, refused.value.suggestions) == ("b__great", ("b__greet",))
        with pytest.raises(RequestTimeout, match="server 'a': no response to 'tools/call'") as late:
            await group.call_tool("a__wait", timeout=3)
        assert late.value.server == "a"
        with pytest.raises(TypeError, match="arguments must be a mapping"):
            await group.call_tool("a__add", [1])  # type: ignore[arg-type]
    with pytest.raises(SessionClosed, match="server 'a': the connection is closed"):
        await group.call_tool("a__add", {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a__ad", "did you mean"),
        ("add", "did you mean 'a__add'"),
        ("search", "names have the form 'server__name'; the servers are 'a', 'files'"),
        ("fils__add", "no tool 'fils__add'; did you mean 'files__add'"),
        ("x" * 100_000, "the servers are"),
        ("", "the servers are"),
        ("a__x_0123456789abcdef", "no tool 'a__x_0123456789abcdef'"),
    ],
)
async def test_an_unknown_tool(name: str, message: str) -> None:
    async with ClientGroup({"a": make_server(), "files": make_server()}) as group:
        await group.list_tools()
        with pytest.raises(UnknownTool, match=message):
            await group.call_tool(name)
        with pytest.raises(TypeError, match="a tool's name must be a string"):
            await group.call_tool(7)  # type: ignore[arg-type]


async def test_unknown_servers_are_named_with_what_may_have_been_meant() -> None:
    async with ClientGroup({"files": desk("north")}) as group:
        with pytest.raises(LocalProtocolError, match="no server 'file' in the group; did you mean 'files'"):
            await group.remove("file")
        with pytest.raises(LocalProtocolError, match="did you mean 'files'"):
            await group.read_resource("desk://common", server="file")
        with pytest.raises(KeyError, match="did you mean 'files'"):
            group.clients["file"]
        with pytest.raises(LocalProtocolError, match="the group has no tool or prompt 'fil__x'"):
            group.split("fil__x")
        with pytest.raises(TypeError, match="a name must be a string"):
            group.join("a", 5)  # type: ignore[arg-type]
        assert set(group.clients) == {"files"}
        assert group.clients.get("file") is None


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"servers": [1]}, TypeError, "servers must map names to targets"),
        ({"servers": {"": Server("x")}}, ValueError, "non-empty string"),
        ({"servers": {"a": 5}}, TypeError, "server 'a': a target must be"),
        ({"servers": {"a": "gopher://x"}}, ValueError, "server 'a': there is no transport for gopher://"),
        ({"mode": "old"}, ValueError, "server 'a': mode must be one of"),
        ({"reconnect": 5}, TypeError, "reconnect must be a Backoff"),
        ({"per_server": {"b": {}}}, ValueError, "per_server has options for 'b'"),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments: Mapping[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        ClientGroup(**{"servers": {"a": Server("x")}, **arguments})


async def test_options_for_all_servers_and_for_one() -> None:
    group = ClientGroup(
        {"a": desk("north"), "b": desk("south")}, mode="legacy", per_server={"b": {"mode": "2025-03-26"}}
    )
    with pytest.raises(LocalProtocolError, match="the group is not connected"):
        await group.call_tool("a__where")
    async with group:
        await group.add("c", desk("west"), mode="2026-07-28")
        versions = {name: client.protocol_version for name, client in group.clients.items()}
    assert versions == {"a": "2025-11-25", "b": "2025-03-26", "c": "2026-07-28"}


async def test_a_server_that_fails_to_list_costs_the_others_nothing() -> None:
    broken = desk("south")

    async def refuse(call: Any, call_next: Any) -> Any:
        if call.method.endswith("/list"):
            raise McpError(-32603, "no list today")
        return await call_next()

    async with ClientGroup(
        {"a": desk("north"), "b": broken, "c": desk("west")}, per_server={"b": {"middleware": [refuse]}}
    ) as group:
        for listed in (await group.list_tools(), await group.list_prompts(), await group.list_resources()):
            assert isinstance(listed, Listed)
            assert list(listed.by_server) == ["a", "c"]
            assert [str(error) for error in listed.errors.values()] == ["server 'b': no list today (error -32603)"]
        with pytest.raises(ValueError, match="timeout"):
            await group.list_tools(timeout=-1)


async def test_a_hostile_template_costs_bounded_work() -> None:
    templates = tuple(f"x:{{+a{number}}}{'/z' * 100}" for number in range(10_000))
    matched = 0

    class Counting(UriTemplate):
        def match(self, uri: str) -> Any:
            nonlocal matched
            matched += len(self.text) * len(uri)
            return super().match(uri)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "UriTemplate", Counting)
        assert not catalog.has_template("x:" + "y/" * 400, templates)
    assert 0 < matched <= catalog.MAX_MATCH_WORK


async def test_the_group_is_entered_once() -> None:
    group = ClientGroup({})
    async with group:
        assert len(await group.list_tools()) == 0
        with pytest.raises(UnknownTool, match=r"^the group has no tool 'x' \("):
            await group.call_tool("x")
    with pytest.raises(LocalProtocolError, match="only once"):
        async with group:
            pass
    with pytest.raises(LocalProtocolError, match="only inside"):
        await group.add("a", desk("north"))
