"""The functions of `Client`, of the objects that it returns, and of `ClientGroup`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import trio
import trio.testing

from tests.checkpoints.table import Check, all_or_nothing, call, cancelled_before, effect, not_entered
from tests.client.listening import TELLS_ALL, TOOLS, acknowledgement, notice
from tests.client.scripted import scripted
from tests.injection import cancel_everywhere
from tests.peer import settle
from tests.server.harness import LEGACY, MODERN
from trio_mcp import Answers, Client, ClientGroup, Context, OutgoingCall, ResponseCache, Server, Subscription
from trio_mcp._nursery import EnteredOnce
from trio_mcp.session.client import ClientSession
from trio_mcp.types import PromptReference, ResourceTemplateReference, meta

URI = "test://x"
KEPT = {"ttlMs": 1000, "cacheScope": "private"}
LISTS = {
    "tools/list": {"tools": [{"name": "one", "inputSchema": {"type": "object"}}]},
    "resources/list": {"resources": [{"name": "one", "uri": URI}]},
    "resources/templates/list": {"resourceTemplates": [{"name": "one", "uriTemplate": "test://{x}"}]},
    "prompts/list": {"prompts": [{"name": "one"}]},
}
ANSWERS: dict[str, Any] = {
    **LISTS,
    "tools/call": {"content": []},
    "resources/read": {"contents": [{"uri": URI, "text": "x"}]},
    "prompts/get": {"messages": []},
    "completion/complete": {"completion": {"values": []}},
    **{name: {} for name in ("ping", "acme/x", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")},
}


def answers(**extra: Any) -> dict[str, Any]:
    """Return the scripted server's result, complete in the sense of the modern era."""
    return {method: {"resultType": "complete", **result, **extra} for method, result in ANSWERS.items()}


@contextlib.asynccontextmanager
async def client_in(revision: str, **arguments: Any) -> AsyncIterator[tuple[Client, list[Any], Any]]:
    given = {"capabilities": {**TELLS_ALL, "completions": {}, "logging": {}}, **arguments}
    async with scripted(given.pop("replies", None) or answers(), revision=revision, **given) as (client, asked, wire):
        yield client, asked, wire


REQUESTS: dict[Any, tuple[str, Any]] = {
    Client.call_tool: (MODERN, lambda client: client.call_tool("one")),
    Client.call_tool_once: (MODERN, lambda client: client.call_tool_once("one")),
    Client.complete: (MODERN, lambda client: client.complete(PromptReference(name="one"), "a")),
    Client.get_prompt: (MODERN, lambda client: client.get_prompt("one")),
    Client.get_prompt_once: (MODERN, lambda client: client.get_prompt_once("one")),
    Client.list_prompts: (MODERN, lambda client: client.list_prompts()),
    Client.list_resources: (MODERN, lambda client: client.list_resources()),
    Client.list_resource_templates: (MODERN, lambda client: client.list_resource_templates()),
    Client.list_tools: (MODERN, lambda client: client.list_tools()),
    Client.ping: (LEGACY, lambda client: client.ping()),
    Client.read_resource: (MODERN, lambda client: client.read_resource(URI)),
    Client.read_resource_once: (MODERN, lambda client: client.read_resource_once(URI)),
    Client.request: (MODERN, lambda client: client.request("acme/x")),
    Client.subscribe_resource: (LEGACY, lambda client: client.subscribe_resource(URI)),
    Client.set_log_level: (LEGACY, lambda client: client.set_log_level("error")),
    Client.unsubscribe_resource: (LEGACY, lambda client: client.unsubscribe_resource(URI)),
    ClientSession.ask: (MODERN, lambda client: client.session.ask("acme/x", {}, lambda outgoing: None)),
}
"""A request of each kind, and a revision that has it."""
CACHED = (Client.list_prompts, Client.list_resources, Client.list_resource_templates, Client.list_tools)


def every_request(function: Any, revision: str, make: Any) -> None:
    """Add the rows of a request: answered by the server, answered by a middleware, and cancelled before it starts."""

    @call(function, "answered by the server")
    async def answered(check: Check) -> None:
        async with client_in(revision) as (client, _, _):
            await check(make(client))

    @call(function, "answered by a middleware")
    async def by_middleware(check: Check) -> None:
        async def answer(outgoing: OutgoingCall, call_next: Any) -> Any:
            return answers()[outgoing.method]

        async with client_in(revision, middleware=[answer]) as (client, asked, _):
            await check(make(client))
            assert not asked or function is ClientSession.ask  # which is below every middleware

    @effect(function, "nothing is asked")
    async def nothing_is_asked() -> None:
        async with client_in(revision) as (client, asked, _):
            await cancelled_before(make(client))
            await settle()
            assert not asked
            assert client.statistics().session.outgoing == 0  # type: ignore[union-attr]


for function, (revision, make) in REQUESTS.items():
    every_request(function, revision, make)


def cached(function: Any, make: Any) -> None:
    @call(function, "kept")
    async def kept(check: Check) -> None:
        async with client_in(MODERN, replies=answers(**KEPT), cache=ResponseCache()) as (client, asked, _):
            await make(client)
            await check(make(client))
            assert len(asked) == 1

    @call(function, "kept, and given because the server can't be asked")
    async def stale(check: Check) -> None:
        gone = {**answers(ttlMs=1, cacheScope="private")}
        async with client_in(MODERN, replies=gone, cache=ResponseCache(stale_if_error=1000)) as (client, _, _):
            await make(client)
            await trio.sleep(0.002)
            await client.session.aclose()
            await check(make(client))


for function in (*CACHED, Client.read_resource):
    cached(function, REQUESTS[function][1])


@call(Client.call_tool, "with progress")
async def call_tool_with_progress(check: Check) -> None:
    server = Server("counts")

    @server.tool
    async def count(ctx: Context) -> int:
        await ctx.report_progress(1)
        return 1

    heard: list[Any] = []
    async with Client(server) as client:
        assert (await check(client.call_tool("count", on_progress=heard.append))).data == 1
        assert len(heard) == 1


# --- lists ------------------------------------------------------------------------------------------------------


def every_list(function: Any, method: str, items: str) -> None:
    page = ANSWERS[method]

    @call(function, "pages with items, without one, and the end")
    async def pages(check: Check) -> None:
        (field,) = page
        cursors = {
            None: {field: page[field] * 3, "nextCursor": "empty"},
            "empty": {field: [], "nextCursor": "last"},
            "last": page,
        }
        scripts = {method: lambda params: {"resultType": "complete", **cursors[params.get("cursor")]}}
        async with client_in(MODERN, replies=scripts) as (client, _, _):
            assert len(await check.loop(function(client))) == 4

    @call(function, "nothing")
    async def nothing(check: Check) -> None:
        scripts = {method: {"resultType": "complete", **{field: [] for field in page}}}
        async with client_in(MODERN, replies=scripts) as (client, _, _):
            assert await check.loop(function(client)) == []

    @effect(function, "nothing is asked")
    async def nothing_is_asked() -> None:
        async with client_in(MODERN) as (client, asked, _):
            await cancelled_before(anext(function(client)))
            await settle()
            assert not asked


every_list(Client.iter_tools, "tools/list", "tools")
every_list(Client.iter_prompts, "prompts/list", "prompts")
every_list(Client.iter_resources, "resources/list", "resources")
every_list(Client.iter_resource_templates, "resources/templates/list", "resource_templates")


# --- lifetime ---------------------------------------------------------------------------------------------------


for mode in (LEGACY, MODERN):

    @call(EnteredOnce.__aenter__, f"a client, {mode}")
    @call(EnteredOnce.__aexit__, f"a client, {mode}")
    async def client_block(check: Check, mode: str = mode) -> None:
        async with check.block(Client(Server("x"), mode=mode)):
            pass


@call(EnteredOnce.__aexit__, "a client that is closed")
async def closed_client_block(check: Check) -> None:
    async with check.block(Client(Server("x"))) as client:
        await client.aclose()


@call(Client.aclose, "never entered")
async def close_nothing(check: Check) -> None:
    await check(Client(Server("x")).aclose())


@call(Client.aclose, "open, and closed already")
async def close_client(check: Check) -> None:
    async with Client(Server("x")) as client:
        await check(client.aclose())
        await check(client.aclose())


# --- notifications, log levels, roots ---------------------------------------------------------------------------


for revision in (LEGACY, MODERN):

    @call(Client.notify, revision)
    async def notify(check: Check, revision: str = revision) -> None:
        async with client_in(revision) as (client, _, wire):
            await check(client.notify("acme/x"))
            await settle()
            assert wire.heard_of("acme/x")

    @call(Client.set_roots, revision)
    async def set_roots(check: Check, revision: str = revision) -> None:
        async with client_in(revision, answers=Answers(roots=[])) as (client, _, _):
            await check(client.set_roots(["file:///new"]))  # type: ignore[list-item]

    @call(Subscription.__anext__, f"{revision}: a change that has come, and one that comes")
    async def next_event(check: Check, revision: str = revision) -> None:
        async with listened(revision) as (_, changed, events):
            await changed()
            await settle()
            assert events.waiting == 1
            await check(events.__anext__())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(check, events.__anext__())
                await settle()
                await changed()

    @call(Client.listen, revision)
    async def listen(check: Check, revision: str = revision) -> None:
        server = Server("x")
        server.add_tool(server_tool)
        async with Client(server, mode=revision) as client, check.block(client.listen(tools_list_changed=True)):
            pass

    @effect(Client.listen, f"{revision}: without a listener")
    async def without_listener(revision: str = revision) -> None:
        server = Server("x")
        server.add_tool(server_tool)
        async with Client(server, mode=revision) as client:
            await not_entered(client.listen(tools_list_changed=True))
            assert client.statistics().subscriptions == 0
            await settle()
            assert server.statistics().listening == 0

    @effect(Subscription.__anext__, f"{revision}: no change is lost")
    async def no_change_lost(revision: str = revision) -> None:
        async with listened(revision) as (_, changed, events):
            announced = taken = 0

            async def scenario() -> None:
                nonlocal announced, taken
                await changed()
                announced += 1
                await events.__anext__()
                taken += 1

            async def nothing_lost() -> None:
                nonlocal announced, taken
                await settle()
                assert events.waiting + taken == announced
                if events.waiting:
                    await events.__anext__()
                announced = taken = 0

            await cancel_everywhere(scenario, nothing_lost)

    @effect(Client.notify, f"{revision}: sent or cancelled")
    async def notified(revision: str = revision) -> None:
        async with client_in(revision) as (client, _, wire):

            async def heard() -> int:
                return len(wire.heard_of("acme/x"))

            await all_or_nothing(lambda number: client.notify("acme/x"), heard)


async def server_tool() -> None:
    """A tool."""


@contextlib.asynccontextmanager
async def listened(revision: str) -> AsyncIterator[tuple[Client, Any, Subscription]]:
    """Yield a client that listens, a function that announces a change to it, and the events."""
    async with client_in(revision, replies={}) as (client, asked, wire):
        opened = trio.Event()
        subscriptions: list[Subscription] = []

        async def stay() -> None:
            async with client.listen(tools_list_changed=True) as events:
                subscriptions.append(events)
                opened.set()
                await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stay)
            await settle()
            if revision == MODERN:
                await wire.send(acknowledgement(asked[-1]))
            await opened.wait()
            subscription = asked[-1].id if revision == MODERN else None

            async def changed() -> None:
                with trio.CancelScope(shield=True):
                    await wire.send(notice(TOOLS, subscription))

            yield client, changed, subscriptions[0]
            nursery.cancel_scope.cancel()


@call(Client.set_roots, "not connected")
async def set_roots_unconnected(check: Check) -> None:
    await check(Client(Server("x"), answers=Answers(roots=[])).set_roots([]))


def set_roots_to(client: Client) -> Callable[[int], Awaitable[None]]:
    return lambda number: client.set_roots([f"file:///{number}"])  # type: ignore[list-item]


@effect(Client.set_roots, "legacy era: the new roots hold and the server is told, or neither")
async def roots_in_the_legacy_era() -> None:
    async with client_in(LEGACY, answers=Answers(roots=["file:///0"])) as (client, _, wire):

        async def held() -> tuple[str, int]:
            (root,) = (await wire.result("roots/list"))["roots"]
            return root["uri"], len(wire.heard_of("notifications/roots/list_changed"))

        await all_or_nothing(set_roots_to(client), held, lambda done: (f"file:///{done}", done))


@effect(Client.set_roots, "modern era: the new roots hold, or the old ones")
async def roots_in_the_modern_era() -> None:
    server = Server("asks")

    @server.tool
    async def roots(ctx: Context) -> str:
        (root,) = await ctx.list_roots()
        return root.uri

    async with Client(server, mode=MODERN, answers=Answers(roots=["file:///0"])) as client:  # type: ignore[list-item]

        async def held() -> str:
            return (await client.call_tool("roots")).data

        await all_or_nothing(set_roots_to(client), held, lambda done: f"file:///{done}")


@effect(Client.set_log_level, "modern era: the level is either the new one or the old one")
async def log_level() -> None:
    levels: Any = ("error", "warning")
    async with client_in(MODERN, log_level=levels[0]) as (client, asked, _):

        async def wanted() -> str:
            await client.request("acme/x")
            return asked[-1].params["_meta"][meta.LOG_LEVEL]

        await all_or_nothing(
            lambda number: client.set_log_level(levels[number % 2]), wanted, lambda done: levels[done % 2]
        )


@call(Client.set_log_level, "modern era")
async def set_log_level(check: Check) -> None:
    async with client_in(MODERN) as (client, _, _):
        await check(client.set_log_level("error"))


# --- groups -----------------------------------------------------------------------------------------------------------


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
