"""Parameters that the server fills: what providers are, where and when they run, and how what they enter ends."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
import trio

from tests.server.harness import both_eras, call, client_of, server_with, text_of, tool_of
from trio_mcp import Context, Depends, Server
from trio_mcp.types import PromptReference, TextResourceContents


def number() -> int:
    return 42


Number = Annotated[int, Depends(number)]


# --- the contract ----------------------------------------------------------------------------------------------------


def test_clients_do_not_see_dependencies() -> None:
    def tool(x: int, given: Number, *, ctx: Context) -> int:
        return x

    schema = tool_of(tool).input_schema
    assert list(schema["properties"]) == ["x"]
    assert schema["required"] == ["x"]
    assert tool(1, 2, ctx=None) == 1  # type: ignore[arg-type]  # the function stays a plain callable


@both_eras
async def test_every_kind_of_handler_can_have_dependencies(revision: str) -> None:

    async def tool(a: int, given: Number) -> int:
        return a + given

    def positional(given: Number, a: int, /) -> int:
        return a - given

    server = server_with(tool, positional)

    @server.resource("file:///{name}")
    async def resource(name: str, given: Number) -> str:
        return f"{name} {given}"

    @server.prompt
    def prompt(a: str, given: Number) -> str:
        return f"{a} {given}"

    @server.completion(prompt="prompt", argument="a")
    async def completion(text: str, given: Number) -> list[str]:
        return [f"{text}{given}"]

    async with client_of(server, revision) as client:
        assert (await client.call_tool("tool", {"a": 1})).data == 43
        assert (await client.call_tool("positional", {"a": 1})).data == -41
        (contents,) = (await client.read_resource("file:///x")).contents
        assert isinstance(contents, TextResourceContents)
        assert contents.text == "x 42"
        (message,) = (await client.get_prompt("prompt", {"a": "b"})).messages
        assert message.content.text == "b 42"  # type: ignore[union-attr]
        done = await client.complete(PromptReference(name="prompt"), "a", "x")
        assert done.completion.values == ["x42"]


@both_eras
async def test_a_client_cannot_fill_a_dependency(revision: str) -> None:
    """Neither with an argument that is not in the schema, nor for a tool that takes any argument."""

    def closed(given: Number) -> int:
        return given

    def open_ended(given: Number, **arguments: Any) -> int:
        return given

    server = server_with(closed)
    server.add_tool(open_ended, input_schema={"type": "object"})
    async with client_of(server, revision) as client:
        refused = await client.call_tool("closed", {"given": 1})
        assert refused.is_error
        assert "given: there is no such argument" in text_of(refused)
        assert (await client.call_tool("open_ended", {"given": 1, "other": 2})).data == 42


async def test_arguments_are_checked_before_any_provider_is_called() -> None:
    calls: list[str] = []

    def provider() -> str:
        calls.append("called")
        return ""

    async def tool(x: int, given: Annotated[str, Depends(provider)]) -> None: ...

    async with client_of(server_with(tool)) as client:
        assert (await client.call_tool("tool", {"x": "no"})).is_error
        assert calls == []
        await client.call_tool("tool", {"x": 1})
        assert calls == ["called"]


class Providers:
    """Every form that a provider can have."""

    def __init__(self, value: str) -> None:
        self.value = value

    def method(self) -> str:
        return self.value

    @contextlib.asynccontextmanager
    async def manager(self) -> AsyncIterator[str]:
        yield self.value

    def __call__(self) -> str:
        return self.value


async def coroutine() -> str:
    await trio.lowlevel.checkpoint()
    return "coroutine"


@functools.wraps(coroutine)
def decorated_coroutine() -> Any:
    return coroutine()


def generator() -> Iterator[str]:
    yield "generator"


async def async_generator() -> AsyncIterator[str]:
    yield "async generator"


def with_default(value: str = "default") -> str:
    return value


def with_context(ctx: Context) -> str:
    return ctx.method


def with_variadic(*args: str, **kwargs: str) -> str:
    return repr((args, kwargs))


def with_settled(given: Annotated[str, Depends(coroutine)]) -> str:
    return given


@pytest.mark.parametrize(
    ("provider", "value"),
    [
        (coroutine, "coroutine"),
        (decorated_coroutine, "coroutine"),
        (generator, "generator"),
        (async_generator, "async generator"),
        (contextlib.contextmanager(generator), "generator"),
        (contextlib.asynccontextmanager(async_generator), "async generator"),
        (Providers("method").method, "method"),
        (Providers("manager").manager, "manager"),
        (Providers("object"), "object"),
        (functools.partial(with_default, "partial"), "partial"),
        (functools.partial(with_default, value="partial"), "partial"),
        (functools.partial(with_settled, given="settled"), "settled"),
        (with_default, "default"),
        (with_context, "tools/call"),
        (with_variadic, "((), {})"),
        (lambda: "lambda", "lambda"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
async def test_forms_of_providers(provider: Any, value: str) -> None:
    async def tool(given: Annotated[str, Depends(provider)]) -> str:
        return given

    def sync_tool(given: Annotated[str, Depends(provider)]) -> str:
        return given

    for function in (tool, sync_tool):
        assert (await call(function, {})).data == value


async def test_a_value_that_happens_to_be_a_context_manager_is_not_entered() -> None:
    """A file, a lock or a client is a value: only what a decorator made of a generator is entered."""
    lock = threading.Lock()

    def provider() -> Any:
        return lock

    async def tool(given: Annotated[Any, Depends(provider)]) -> bool:
        return given is lock and not lock.locked()

    assert (await call(tool, {})).data is True


# --- what is refused -------------------------------------------------------------------------------------------------


def in_a_circle(given: Annotated[int, Depends(in_a_circle_2)]) -> int:
    return given


def in_a_circle_2(given: Annotated[int, Depends(in_a_circle)]) -> int:
    return given


def unfilled(url: str) -> str:
    return url


def unresolved(url: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


def positional_only(ctx: Context, /) -> str:
    return ""


def deep(given: Annotated[str, Depends(unfilled)]) -> str:
    return given


def two_contexts(one: Context, two: Context) -> str:
    return ""


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (Depends(in_a_circle), "in a circle: in_a_circle -> in_a_circle_2 -> in_a_circle"),
        (Depends(unfilled), "'unfilled' has a parameter 'url' that nothing fills: annotate it with Context or"),
        (Depends(deep), "'unfilled' has a parameter 'url' that nothing fills"),
        (Depends(unresolved), "'unresolved': an annotation can't be resolved: name 'Nowhere'"),
        (Depends(positional_only), "'positional_only': the parameter 'ctx' is passed by name, so it can't be pos"),
        (Depends(two_contexts), "'two_contexts': 'one' and 'two' are both annotated with Context"),
        (Depends(Providers), "'Providers' is a class; pass a function"),
        (Depends(number()), "'int' is not a function, but int; pass a function"),  # type: ignore[arg-type]
        (Depends, r"write Depends\(provider\), not Depends"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_unusable_dependency_is_refused_at_registration(marker: Any, message: str) -> None:
    """The message names the tool, its parameter and the provider."""

    def tool(given: Annotated[Any, marker]) -> None: ...

    with pytest.raises(TypeError, match=f"tool 'tool': the parameter 'given': ?.*{message}"):
        Server("test").add_tool(tool)


def as_a_default(given: Any = Depends(number)) -> None: ...  # noqa: B008 - it is what is refused


def with_two_markers(given: Annotated[Number, Depends(generator)]) -> None: ...


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        (as_a_default, "the parameter 'given': Depends can't be a default value; write Annotated"),
        (with_two_markers, r"has 2 Depends\(\.\.\.\) markers"),
    ],
)
def test_a_marker_stands_alone_in_the_annotation(tool: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Server("test").add_tool(tool)


# --- overriding ------------------------------------------------------------------------------------------------------


def real() -> str:
    return "real"


def uses_real(given: Annotated[str, Depends(real)]) -> str:
    return f"uses {given}"


async def test_a_provider_can_be_overridden() -> None:
    async def fake() -> str:
        return "fake"

    def around(given: Annotated[str, Depends(real)]) -> str:
        return f"around {given}"

    async def tool(given: Annotated[str, Depends(uses_real)]) -> str:
        return given

    def sync_tool(given: Annotated[str, Depends(uses_real)]) -> str:
        return given

    server = server_with(tool, sync_tool)
    async with client_of(server) as client:

        async def seen() -> list[str]:
            return [(await client.call_tool(name)).data for name in ("tool", "sync_tool")]

        assert await seen() == ["uses real"] * 2
        with server.override(real, fake):
            assert await seen() == ["uses fake"] * 2
            with server.override(real, around):  # an override may depend on the provider that it overrides
                assert await seen() == ["uses around real"] * 2
            assert await seen() == ["uses fake"] * 2
            with server.override(uses_real, real):  # the override is taken as it is
                assert await seen() == ["real"] * 2
        assert await seen() == ["uses real"] * 2


async def test_overrides_in_several_tasks_may_end_in_any_order() -> None:
    async def tool(given: Annotated[str, Depends(real)]) -> str:
        return given

    server = server_with(tool)
    first, second = server.override(real, lambda: "first"), server.override(real, lambda: "second")
    async with client_of(server) as client:
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert (await client.call_tool("tool")).data == "second"
        second.__exit__(None, None, None)
        assert (await client.call_tool("tool")).data == "real"


def test_an_override_must_be_a_provider() -> None:
    server = Server("test")
    message = "override: its provider 'unfilled' has a parameter 'url' that nothing fills"
    with pytest.raises(TypeError, match=message), server.override(real, unfilled):
        pass
    with pytest.raises(TypeError, match="'str' is not a function"), server.override(real, "fake"):  # type: ignore[arg-type]
        pass
