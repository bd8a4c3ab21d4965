"""The functions of `ClientGroup`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.checkpoints.table import Check, all_or_nothing, call, cancelled_before, effect
from tests.peer import settle
from trio_mcp import ClientGroup, Context, Server
from trio_mcp._nursery import EnteredOnce
from trio_mcp.types import PromptReference, ResourceTemplateReference

URI = "test://x"


def offering() -> Server:
    """Return a server with one item of each kind."""
    server = Server("one")

    @server.tool
    async def ask() -> int:
        return 1

    @server.prompt
    async def fill(word: str) -> str:
        return word

    server.add_resource(URI, ask, name="fixed")

    @server.resource("item://{word}")
    async def item(word: str) -> str:
        return word

    @server.completion(prompt="fill", argument="word")
    async def suggest(typed: str) -> list[str]:
        return [typed]

    return server


CALLED: dict[Any, Callable[[ClientGroup], Any]] = {
    ClientGroup.call_tool: lambda group: group.call_tool("a__ask"),
    ClientGroup.complete: lambda group: group.complete(PromptReference(name="a__fill"), "word"),
    ClientGroup.get_prompt: lambda group: group.get_prompt("a__fill", {"word": "x"}),
    ClientGroup.read_resource: lambda group: group.read_resource(URI, server="a"),
}
LISTED: dict[Any, Callable[[ClientGroup], Any]] = {
    ClientGroup.list_prompts: lambda group: group.list_prompts(),
    ClientGroup.list_resources: lambda group: group.list_resources(),
    ClientGroup.list_resource_templates: lambda group: group.list_resource_templates(),
    ClientGroup.list_tools: lambda group: group.list_tools(),
}


def asked_of_a_server(function: Any, make: Callable[[ClientGroup], Any]) -> None:
    @call(function, "asked of a server")
    async def asked(check: Check) -> None:
        async with ClientGroup({"a": offering()}) as group:
            await check(make(group))

    @effect(function, "nothing is asked")
    async def nothing_is_asked() -> None:
        server = offering()
        asked: list[str] = []

        async def note(context: Context, call_next: Any) -> Any:
            asked.append(context.method)
            return await call_next()

        noting = Server("noting", middleware=[note])
        noting.mount(server)
        async with ClientGroup({"a": noting}) as group:
            await cancelled_before(make(group))
            await settle()
            assert not asked
            await make(group)
            assert asked  # so it would have been seen


for function, make in {**CALLED, **LISTED}.items():
    asked_of_a_server(function, make)


def without_servers(function: Any, make: Callable[[ClientGroup], Any]) -> None:
    @call(function, "no servers")
    async def no_servers(check: Check) -> None:
        async with ClientGroup({}) as group:
            assert not len(await check(make(group)))

    @call(function, "a server that is not there")
    async def not_there(check: Check) -> None:
        group = ClientGroup({"a": offering()})  # never entered
        assert (await check(make(group))).errors.keys() == {"a"}


for function, make in LISTED.items():
    without_servers(function, make)


@call(ClientGroup.read_resource, "whose it is is looked up, and is known")
async def read_resource(check: Check) -> None:
    async with ClientGroup({"a": offering(), "b": Server("empty")}) as group:
        await check(group.read_resource(URI))
        await check(group.read_resource(URI))


@call(ClientGroup.complete, "whose it is is looked up")
async def complete(check: Check) -> None:
    async with ClientGroup({"a": offering()}) as group:
        await check(group.complete(ResourceTemplateReference(uri="item://{word}"), "word"))


@call(ClientGroup.call_tool, "a name that was shortened")
async def shortened(check: Check) -> None:
    server = Server("one")
    server.add_tool(answer, name="x" * 100)
    async with ClientGroup({"a": server}) as group:
        await check(group.call_tool(group.join("a", "x" * 100)))


async def answer() -> int:
    return 1


# --- lifetime ---------------------------------------------------------------------------------------------------


@call(EnteredOnce.__aenter__, "a group")
@call(EnteredOnce.__aexit__, "a group")
async def group_block(check: Check) -> None:
    for servers in ({}, {"a": Server("x")}):
        for require in ("all", "any", "none"):
            async with check.block(ClientGroup(servers, require=require)):  # type: ignore[arg-type]
                pass


@call(ClientGroup.aclose, "never entered, empty, open, closed already")
async def close_group(check: Check) -> None:
    await check(ClientGroup({}).aclose())
    async with ClientGroup({}) as group:
        await check(group.aclose())
    async with ClientGroup({"a": Server("x")}) as group:
        await check(group.aclose())
        await check(group.aclose())


@call(ClientGroup.add, "waited for, and not")
async def add(check: Check) -> None:
    for require in ("all", "any", "none"):
        async with ClientGroup({}, require=require) as group:  # type: ignore[arg-type]
            await check(group.add("a", Server("x")))


@effect(ClientGroup.add, "it is there, or it is not")
async def added() -> None:
    for require in ("all", "none"):
        async with ClientGroup({}, require=require) as group:  # type: ignore[arg-type]

            async def count(group: ClientGroup = group) -> int:
                return len(group.status)

            await all_or_nothing(lambda number, group=group: group.add(f"{number}", Server("x")), count)  # type: ignore[misc]


@call(ClientGroup.remove, "never entered, and open")
async def remove(check: Check) -> None:
    await check(ClientGroup({"a": Server("x")}).remove("a"))
    async with ClientGroup({"a": Server("x")}) as group:
        await check(group.remove("a"))
