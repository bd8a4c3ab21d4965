"""What a server's functions have in common: of tools, prompts, resources, completions and custom methods."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.server.harness import both_eras, client_of, every_revision, give_up
from tests.server.input_harness import hand_client
from trio_mcp import Client, Context, McpError, Server
from trio_mcp.types.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from trio_mcp.types.versions import at_least

CALL: dict[str, Any] = {"name": "it", "arguments": {"value": "v"}}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "tool": ("tools/call", CALL),
    "prompt": ("prompts/get", CALL),
    "resource": ("resources/read", {"uri": "x://v"}),
    "completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "it"}, "argument": {"name": "value", "value": "v"}},
    ),
    "method": ("com.example/it", {}),
    "mounted tool": ("tools/call", {**CALL, "name": "in__it"}),
}
"""A request that calls the function of each kind."""

FAILED = {
    "tool": "the tool 'it' failed",
    "prompt": "the prompt 'it' failed",
    "resource": "the resource 'x://{value}' failed",
    "completion": "the completion of 'value' for 'it' failed",
    "method": "the method 'com.example/it' failed",
}

every_kind = pytest.mark.parametrize("kind", REQUESTS)


def text(value: str) -> str:
    return value


def add(server: Server, kind: str, function: Any) -> None:
    """Offer a function of one text in the way of its kind."""
    match kind:
        case "tool":
            server.add_tool(function, name="it")
        case "prompt":
            server.add_prompt(function, name="it")
        case "resource":
            server.add_resource("x://{value}", function, name="it")
        case "completion":
            server.add_prompt(text, name="it")
            server.add_completion(function, prompt="it", argument="value")
        case "method":
            server.add_method("com.example/it", with_parameters(function))
        case _:
            inner = Server("inner")
            inner.add_tool(function, name="it")
            server.mount(inner, prefix="in")


def with_parameters(function: Any) -> Any:
    """Return a function as a method has it."""

    def method(params: dict[str, Any], ctx: Context) -> Any:
        return function("v")

    async def async_method(params: dict[str, Any], ctx: Context) -> Any:
        return await function("v")

    if not callable(function):
        return function
    return async_method if inspect.iscoroutinefunction(function) else method


def offering(kind: str, function: Any, **options: Any) -> Server:
    server = Server("test", **options)
    add(server, kind, function)
    return server


async def refused(client: Client, kind: str) -> McpError:
    with pytest.raises(McpError) as caught:
        await client.request(*REQUESTS[kind])
    return caught.value


@every_kind
async def test_a_sync_function_runs_in_a_thread_and_an_async_one_in_the_event_loop(kind: str) -> None:
    """A sync function may block: the event loop goes on, and reaches it."""
    places: list[int] = []

    async def here(value: str) -> Any:
        places.append(threading.get_ident())
        raise McpError(-1, value)

    def there(value: str) -> Any:
        places.append(threading.get_ident())
        trio.from_thread.run(here, value)

    for function in (here, there):
        async with client_of(offering(kind, function)) as client:
            assert (await refused(client, kind)).code == -1
    loop, thread, reached = places
    assert loop == reached == threading.get_ident() != thread


@both_eras
@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("kind", FAILED)
async def test_a_failure_names_the_function_and_only_the_log_has_more(
    kind: str, sync: bool, revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`expose_errors` tells clients, too."""

    def fail(value: str) -> Any:
        raise LookupError("the secret")

    async def fail_async(value: str) -> Any:
        raise ExceptionGroup("from a nursery", [LookupError("the secret")])

    for more, options in (("", {}), (": LookupError: the secret", {"expose_errors": True})):
        caplog.clear()
        async with client_of(offering(kind, fail if sync else fail_async, **options), revision) as client:
            if kind == "tool":
                result = await client.request(*REQUESTS[kind])
                assert result["isError"]
                assert result["content"] == [{"type": "text", "text": FAILED[kind] + more}]
            else:
                error = await refused(client, kind)
                assert (error.code, error.message, error.data) == (INTERNAL_ERROR, FAILED[kind] + more, None)
        (record,) = caplog.records
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], LookupError)


@both_eras
@pytest.mark.parametrize("grouped", [True, False])
@every_kind
async def test_an_mcp_error_is_the_answer(
    kind: str, grouped: bool, revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(value: str) -> Any:
        error = McpError(-32042, "not today", {"when": "tomorrow"})
        raise ExceptionGroup("from a nursery", [error]) if grouped else error

    async with client_of(offering(kind, fail), revision) as client:
        error = await refused(client, kind)
    assert (error.code, error.message, error.data) == (-32042, "not today", {"when": "tomorrow"})
    assert not caplog.records


@both_eras
@every_kind
async def test_a_cancelled_request_cancels_the_function(kind: str, revision: str) -> None:
    entered, left = trio.Event(), trio.Event()

    async def wait(value: str) -> Any:
        entered.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            left.set()
            raise

    async with client_of(offering(kind, wait), revision) as client:
        await give_up(entered.wait, client.request, *REQUESTS[kind])
        await left.wait()


@pytest.mark.parametrize(
    ("kind", "key"), [("tool", "tools"), ("prompt", "prompts"), ("resource", "resourceTemplates"), ("uri", "resources")]
)
async def test_what_a_middleware_changes_in_a_list_the_next_client_does_not_see(kind: str, key: str) -> None:
    async def shout(context: Context, call_next: Callable[[], Any]) -> dict[str, Any]:
        result: dict[str, Any] = await call_next()
        for each in result[key]:
            each["name"] += "!"
            each.get("inputSchema", {}).clear()
        return result

    server = Server("test", middleware=[shout])
    if kind == "uri":
        server.add_resource("x://it", lambda: "", name="it")
    else:
        add(server, kind, text)
    method = "resources/templates/list" if kind == "resource" else f"{key}/list"
    for _ in range(2):
        async with client_of(server) as client:
            assert [each["name"] for each in (await client.request(method))[key]] == ["it!"]


@both_eras
@pytest.mark.parametrize(
    ("method", "params"),
    [("prompts/list", {}), ("resources/list", {}), *(REQUESTS[kind] for kind in ("prompt", "resource", "completion"))],
)
async def test_what_a_server_does_not_offer_has_no_methods(method: str, params: dict[str, Any], revision: str) -> None:
    async with hand_client(Server("test"), revision) as client:
        assert (await client.ask(method, params)).code == METHOD_NOT_FOUND


@every_revision
@pytest.mark.parametrize(
    ("kind", "name", "declared"),
    [
        ("prompt", "prompts", {"listChanged": True}),
        ("resource", "resources", {"listChanged": True, "subscribe": True}),
        ("completion", "completions", {}),
    ],
)
async def test_a_capability_is_declared_if_there_is_something_or_ever_was(
    kind: str, name: str, declared: dict[str, Any], revision: str
) -> None:
    server = Server("test")
    async with client_of(server, revision) as client:
        assert name not in client.session.server.capabilities
    add(server, kind, text if kind != "completion" else lambda value: [value])
    if kind == "resource":
        server.remove_resource("x://{value}")
    else:
        server.remove_prompt("it")
    async with client_of(server, revision) as client:
        known = kind != "completion" or at_least(revision, "2025-03-26")
        assert client.session.server.capabilities.get(name) == (declared if known else None)


def test_decorators_leave_the_function_as_it_is() -> None:
    server = Server("test")
    assert server.tool(text) is text
    for decorator in (
        server.tool(name="other"),
        server.prompt,
        server.prompt(name="other"),
        server.resource("x://{value}"),
        server.completion(prompt="text", argument="value"),
    ):
        assert decorator(text) is text
    assert server.statistics().tools == 2


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda server: server.tool("add"), r"@server\.tool\(name='add'\)"),
        (lambda server: server.prompt("add"), r"@server\.prompt\(name='add'\)"),
        (lambda server: server.resource(text), r"@server\.resource\(\"config://app\"\)"),
        *((lambda server, kind=kind: add(server, kind, 3), "must be (handled by )?a function") for kind in REQUESTS),
        *((lambda server, thing=thing: server.add_tool(thing), "must be a function") for thing in (None, "a", [text])),
    ],
)
def test_only_a_function_can_be_registered(make: Callable[[Server], Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make(Server("test"))
