"""Mounting: what a server offers appears in another, stays what it is, and follows its changes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import pytest
import trio

from tests.server.harness import both_eras, client_of, text_of
from tests.server.input_harness import Name, accept, hand_client
from trio_mcp import Context, Depends, InputOptions, McpError, Server, types
from trio_mcp.types.error_codes import INVALID_PARAMS


def state_of(ctx: Context[Any]) -> Any:
    return ctx.state


def lifespan_of(state: str, events: list[str]) -> Callable[[Any], contextlib.AbstractAsyncContextManager[str]]:
    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        events.append(f"{state} in")
        try:
            yield state
        finally:
            events.append(f"{state} out")

    return lifespan


def files(**options: Any) -> Server:
    """Return a server with one of everything."""
    server = Server("files", **options)

    @server.tool
    async def whoami(ctx: Context[Any], state: Annotated[Any, Depends(state_of)]) -> list[Any]:
        return [ctx.state, state]

    @server.prompt
    def review(language: str) -> str:
        return f"Review this {language}."

    @server.resource("config://files")
    def config() -> str:
        return "config"

    @server.resource("file:///{name}")
    def file(name: str) -> str:
        return f"file {name}"

    @server.completion(prompt="review", argument="language")
    def languages(value: str) -> list[str]:
        return ["python"]

    @server.completion(resource="file:///{name}", argument="name")
    def names(value: str) -> list[str]:
        return ["a.txt"]

    return server


@both_eras
async def test_everything_of_the_other_is_offered_under_the_prefix_and_works(revision: str) -> None:
    server = Server("main")
    server.mount(files(), prefix="files")
    async with client_of(server, revision) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["files__whoami"]
        assert (await client.call_tool("files__whoami")).data == [None, None]
        (prompt,) = (await client.list_prompts()).prompts
        assert prompt.name == "files__review"
        got = await client.get_prompt("files__review", {"language": "C"})
        assert got.messages[0].content.text == "Review this C."
        (resource,) = (await client.list_resources()).resources
        assert (resource.name, resource.uri) == ("files__config", "config://files")
        (template,) = (await client.list_resource_templates()).resource_templates
        assert (template.name, template.uri_template) == ("files__file", "file:///{name}")
        for uri, text in (("config://files", "config"), ("file:///x", "file x")):
            (contents,) = (await client.read_resource(uri)).contents
            assert contents.text == text
        with pytest.raises(McpError) as refused:
            await client.call_tool("whoami")
        assert refused.value.code == INVALID_PARAMS
        for reference, argument, values in (
            (types.PromptReference(name="files__review"), "language", ["python"]),
            (types.ResourceTemplateReference(uri="file:///{name}"), "name", ["a.txt"]),
        ):
            assert (await client.complete(reference, argument, "")).completion.values == values


@both_eras
async def test_each_lifespan_is_entered_once_in_a_run_and_each_function_has_its_own_state(revision: str) -> None:
    """Inner lifespans are inside; a server that is mounted at two places of a tree has one state."""
    events: list[str] = []
    shared = files(lifespan=lifespan_of("shared", events))
    left, right = Server("left"), Server("right", lifespan=lifespan_of("right", events))
    left.mount(shared, prefix="shared")
    main = Server("main", lifespan=lifespan_of("main", events))
    main.add_tool(state_of)
    main.mount(left, prefix="left")
    main.mount(right, prefix="right")
    right.add_tool(state_of)
    async with client_of(main, revision) as client:
        assert events == ["main in", "right in", "shared in"]
        (shared_name,) = [tool.name for tool in (await client.list_tools()).tools if "whoami" in tool.name]
        assert (await client.call_tool(shared_name)).data == ["shared", "shared"]
        assert text_of(await client.call_tool("right__state_of")) == "right"
        assert text_of(await client.call_tool("state_of")) == "main"
    assert events[3:] == ["shared out", "right out", "main out"]


@both_eras
async def test_middleware_of_both_surrounds_a_call_the_outer_one_first(revision: str) -> None:
    seen: list[tuple[str, str, Any]] = []

    def note(who: str) -> Any:
        async def middleware(context: Context[Any], call_next: Any) -> Any:
            if context.method == "tools/call":
                seen.append((who, context.params["name"], context.state))
            return await call_next()

        return middleware

    server = Server("main", middleware=[note("outer")])
    server.mount(files(middleware=[note("inner")], lifespan=lifespan_of("own", [])), prefix="f")
    server.add_tool(lambda: None, name="plain")
    async with client_of(server, revision) as client:
        await client.call_tool("f__whoami")
        await client.call_tool("plain")
    assert seen == [("outer", "f__whoami", None), ("inner", "whoami", "own"), ("outer", "plain", None)]


@both_eras
async def test_later_changes_of_the_other_show_and_are_told(revision: str, autojump_clock: Any) -> None:
    other, server = Server("other"), Server("main")
    middle = Server("middle")
    other.add_resource("x://one", lambda: "1", name="one")
    middle.mount(other)
    server.mount(middle, prefix="o")
    watching = {"tools_list_changed": True, "resources": ["x://one"]}
    async with client_of(server, revision) as client, client.listen(**watching) as changes:
        other.notify_resource_updated("x://one")
        assert (await anext(aiter(changes))).uri == "x://one"
        other.add_tool(lambda: 7, name="late")
        await anext(aiter(changes))
        assert [tool.name for tool in (await client.list_tools()).tools] == ["o__late"]
        other.remove_tool("late")
        await anext(aiter(changes))
        assert (await client.list_tools()).tools == []


@both_eras
async def test_a_server_mounted_in_a_run_is_there_at_once(revision: str, autojump_clock: Any) -> None:
    server = Server("main")
    async with client_of(server, revision) as client:
        server.mount(files(), prefix="f")
        assert (await client.call_tool("f__whoami")).data == [None, None]
        with pytest.raises(RuntimeError, match="has a lifespan"):
            server.mount(Server("late", lifespan=lifespan_of("late", [])), prefix="late")


async def test_a_lifespan_may_mount_a_server_that_has_one() -> None:
    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        server.mount(files(lifespan=lifespan_of("inner", [])), prefix="f")
        yield

    async with client_of(Server("main", lifespan=lifespan)) as client:
        assert (await client.call_tool("f__whoami")).data == ["inner", "inner"]


@both_eras
async def test_custom_methods_keep_their_names_and_have_the_state_of_their_server(revision: str) -> None:
    heard: list[Any] = []
    arrived = trio.Event()
    other = Server("other", lifespan=lifespan_of("own", []))
    other.add_method("com.example/early", lambda params, ctx: {"state": ctx.state})
    server = Server("main")
    server.mount(other, prefix="o")
    other.add_method("com.example/late", lambda params, ctx: {"state": ctx.state})

    async def note(params: Any, ctx: Any) -> None:
        heard.append(ctx.state)
        arrived.set()

    other.add_notification("com.example/note", note)
    async with client_of(server, revision) as client:
        for method in ("com.example/early", "com.example/late"):
            assert (await client.request(method, {}))["state"] == "own"
        await client.notify("com.example/note")
        with trio.fail_after(5):  # against a hang only
            await arrived.wait()
    assert heard == ["own"]


OFFER: dict[str, Callable[[Server], object]] = {
    "tool": lambda server: server.add_tool(lambda: None, name="same"),
    "prompt": lambda server: server.add_prompt(lambda: "x", name="same"),
    "resource": lambda server: server.add_resource("x://same", lambda: "x", name="same"),
    "template": lambda server: server.add_resource("x://{same}", lambda same: "x", name="same"),
    "method": lambda server: server.add_method("com.example/same", lambda params, ctx: None),
    "notification": lambda server: server.add_notification("com.example/same", ignore),
}


async def ignore(params: Any, ctx: Any) -> None:
    pass


@pytest.mark.parametrize("offer", OFFER.values(), ids=OFFER)
def test_a_conflict_is_refused_at_the_mount_and_nothing_is_left_of_it(offer: Callable[[Server], object]) -> None:
    other, server = files(), Server("main")
    offer(other)
    offer(server)
    before = server.statistics()
    with pytest.raises(ValueError, match=r"'files' can't be mounted in 'main': (?=.*already).*same"):
        server.mount(other)
    assert server.statistics() == before
    other.add_tool(lambda: None, name="later")
    assert server.statistics() == before


@pytest.mark.parametrize("offer", OFFER.values(), ids=OFFER)
def test_a_conflict_that_comes_later_is_refused_where_it_is_added(offer: Callable[[Server], object]) -> None:
    """The other servers in which it is mounted don't keep it either."""
    other, first, second = Server("other"), Server("first"), Server("second")
    first.mount(other)
    second.mount(other)
    offer(second)
    with pytest.raises(ValueError, match=r"(?=.*already).*same"):
        offer(other)
    offer(first)  # there is room for it


def test_an_invalid_mount_is_refused_with_a_reason() -> None:
    server, other = Server("main"), Server("other", extensions={"com.example/x": {}})
    with pytest.raises(TypeError, match="only a Server can be mounted, got str"):
        server.mount("other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"extension 'com\.example/x'"):
        server.mount(other)
    with pytest.raises(ValueError, match="would contain itself"):
        server.mount(server)
    middle = Server("middle")
    server.mount(middle)
    with pytest.raises(ValueError, match="would contain itself"):
        middle.mount(server)
    with pytest.raises(ValueError, match="already mounted there"):
        server.mount(middle, prefix="again")
    for prefix in ("", "a__b", "a_", "a b", "a" * 33):
        with pytest.raises(ValueError, match="the prefix must consist of"):
            server.mount(Server("third"), prefix=prefix)


async def test_the_state_of_a_mounted_function_is_sealed_with_the_key_of_the_server_that_is_served() -> None:
    """That way several processes that share the key can serve one request, whatever is mounted in them."""

    def process() -> Server:
        other = Server("other")

        @other.tool
        async def greet(ctx: Context[Any]) -> str:
            answer = await ctx.elicit("Who are you?", Name)
            return f"Hello {answer.data.name}"

        server = Server("main", input=InputOptions(key=b"k" * 32))
        server.mount(other, prefix="o")
        return server

    params = {"name": "o__greet", "arguments": {}}
    async with hand_client(process()) as first:
        asked = await first.ask("tools/call", params)
    answers = {key: accept(name="Ada") for key in asked["inputRequests"]}
    async with hand_client(process()) as second:
        again = {**params, "inputResponses": answers, "requestState": asked["requestState"]}
        result = await second.ask("tools/call", again)
    assert result["content"][0]["text"] == "Hello Ada"
