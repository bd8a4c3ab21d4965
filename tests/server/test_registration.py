"""Registration: what can be a tool, under which name and with which details, and what is refused (`server/tools`)."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from tests.server.harness import both_eras, call, client_of, server_with, text_of, tool_of
from trio_mcp import Client, Context, InputOptions, Server, types


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def add_async(a: int, b: int) -> int:
    return a + b


class Adder:
    """Adds."""

    def __init__(self, base: int) -> None:
        self.base = base

    def __call__(self, a: int, b: int) -> int:
        return self.base + a + b

    def method(self, a: int, b: int) -> int:
        return self.base + a + b

    async def async_method(self, a: int, b: int) -> int:
        return self.base + a + b

    @classmethod
    def made_of(cls, a: int, b: int) -> int:
        return cls(0)(a, b)

    @staticmethod
    def static(a: int, b: int) -> int:
        return a + b


class AsyncAdder:
    async def __call__(self, a: int, b: int) -> int:
        return a + b


def plainly_wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def asynchronously_wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


CALLABLES: dict[str, Callable[..., Any]] = {
    "function": add,
    "async function": add_async,
    "bound method": Adder(0).method,
    "async bound method": Adder(0).async_method,
    "class method": Adder.made_of,
    "static method": Adder.static,
    "static method object": Adder.__dict__["static"],
    "object": Adder(0),
    "async object": AsyncAdder(),
    "partial": functools.partial(add),
    "partial of an async function": functools.partial(add_async),
    "partial of a partial": functools.partial(functools.partial(add)),
    "partial of a method": functools.partial(Adder(0).method),
    "partial of an object": functools.partial(AsyncAdder()),
    "decorated": plainly_wrapped(add),
    "decorated twice": plainly_wrapped(plainly_wrapped(add)),
    "async under an async decorator": asynchronously_wrapped(add_async),
    "async under a sync decorator": plainly_wrapped(add_async),
    "cached": functools.lru_cache(add),
    "partial of a decorated": functools.partial(plainly_wrapped(add_async)),
    "decorated partial": plainly_wrapped(functools.partial(add)),
}


@pytest.mark.parametrize("function", CALLABLES.values(), ids=CALLABLES)
async def test_every_kind_of_callable_keeps_its_types_and_can_be_called(function: Callable[..., Any]) -> None:
    definition = tool_of(function)
    assert definition.input_schema["properties"] == {"a": {"type": "integer"}, "b": {"type": "integer"}}
    assert definition.input_schema["required"] == ["a", "b"]
    assert definition.output_schema is not None
    result = await call(function, {"a": 1, "b": 2})
    assert result.data == 3


async def test_arguments_bound_by_a_partial_are_not_offered() -> None:
    """The server's author bound it, a caller must not be able to override it."""
    bound = functools.partial(functools.partial(add, b=5))
    assert tool_of(bound).input_schema["properties"] == {"a": {"type": "integer"}}
    assert (await call(bound, {"a": 1})).data == 6
    assert (await call(bound, {"a": 1, "b": 7})).is_error
    assert (await call(functools.partial(add, 5), {"b": 1})).data == 6


@pytest.mark.parametrize(
    ("function", "name"),
    [(add, "add"), (functools.partial(add, 1), "add"), (Adder(0), "Adder"), (Adder(0).method, "method")],
)
async def test_the_name_is_that_of_the_function(function: Callable[..., Any], name: str) -> None:
    async with client_of(server_with(function)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [name]


@pytest.mark.parametrize("name", ["getUser", "DATA_EXPORT_v2", "admin.tools.list", "a", "x" * 128, "-", "1"])
async def test_the_names_that_the_specification_allows(name: str) -> None:
    """2026-07-28 `server/tools`, Tool Names."""
    server = Server("test")
    server.add_tool(add, name=name)
    async with client_of(server) as client:
        assert (await client.call_tool(name, {"a": 1, "b": 2})).data == 3


@example("x" * 129)
@example("a\n")
@given(st.text(max_size=130).filter(lambda name: not name.isascii() or " " in name or "," in name or not name))
def test_other_names_are_refused_when_registered(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid tool name"):
        Server("test").add_tool(add, name=name)


def test_a_name_can_be_used_only_once() -> None:
    server = server_with(add)
    with pytest.raises(ValueError, match="there is already a tool named 'add'"):
        server.add_tool(add)
    server.remove_tool("add")
    server.add_tool(add)
    with pytest.raises(KeyError, match="no tool named 'other'"):
        server.remove_tool("other")


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class GeneratorObject:
    def __call__(self) -> Iterator[int]:
        yield 1


def positional(*numbers: int) -> int:
    return sum(numbers)


@pytest.mark.parametrize(
    ("function", "details", "error", "text"),
    [
        (generator, {}, TypeError, "is a generator; return a value"),
        (async_generator, {}, TypeError, "is a generator; return a value"),
        (GeneratorObject(), {}, TypeError, "is a generator; return a value"),
        (functools.partial(generator), {"name": "tool"}, TypeError, "is a generator; return a value"),
        (Adder, {}, TypeError, "tool 'Adder' is a class"),
        (Adder.method, {}, TypeError, "register the bound method"),
        (positional, {}, TypeError, r"the parameter \*numbers is variadic"),
        (positional, {"input_schema": {"type": "object"}}, TypeError, r"the parameter \*numbers is variadic"),
        (lambda **options: 1, {"name": "tool"}, TypeError, r"the parameter \*\*options is variadic"),
        ({}.pop, {}, TypeError, "no readable signature"),
        (lambda: 1, {}, ValueError, "pass name="),
    ],
)
def test_a_callable_that_is_no_tool_is_refused(
    function: Any, details: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        Server("test").add_tool(function, **details)


@both_eras
async def test_a_custom_input_schema_is_shown_as_it_is_and_enforced(revision: str) -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"unit": {"enum": ["C", "F"]}},
        "required": ["unit"],
        "patternProperties": {"^x-": {"type": "integer"}},
    }
    server = Server("test")
    server.add_tool(lambda **arguments: arguments, name="tool", input_schema=schema)
    shown = {**schema}
    schema["required"] = []  # the caller's dict is the caller's

    async with client_of(server, revision) as client:
        assert (await client.list_tools()).tools[0].input_schema == shown
        result = await client.call_tool("tool", {"unit": "C", "x-a": 1, "more": None})
        assert not result.is_error
        assert text_of(result) == '{"unit":"C","x-a":1,"more":null}'
        for wrong in ({}, {"unit": "K"}, {"unit": "C", "x-a": "one"}):
            assert (await client.call_tool("tool", wrong)).is_error


async def test_arguments_are_checked_against_schema_and_hints() -> None:
    schema = {"type": "object", "properties": {"a": {"minimum": 3}}}

    def function(a: int) -> int:
        return a

    assert (await call(function, {"a": 3}, input_schema=schema)).data == 3
    assert (await call(function, {"a": 2}, input_schema=schema)).is_error
    assert (await call(function, {"a": "x"}, input_schema=schema)).is_error


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({}, '"type": "object"'),
        ({"type": "array"}, '"type": "object"'),
        ({"type": "object", "properties": 3}, "invalid"),
        ({"type": "object", "$ref": "https://example.com/schema"}, "outside itself"),
        ({"type": "object", "$schema": "urn:other"}, "dialect"),
    ],
)
def test_an_unusable_input_schema_is_refused(schema: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Server("test").add_tool(add, input_schema=schema)


DETAILS = types.Implementation(
    name="test",
    version="1.2",
    title="Test",
    description="A test",
    website_url="https://example.com",
    icons=[types.Icon(src="https://example.com/i.png")],
)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Server(DETAILS, version="2"), TypeError, r"given twice, as '1\.2' and '2'"),
        (lambda: Server("test", revisions=[]), ValueError, "revisions must"),
        (lambda: Server("test", revisions="2025-11-25"), TypeError, "revisions must be a list"),
        (lambda: Server("test", lifespan=async_generator), TypeError, "@asynccontextmanager"),  # type: ignore[arg-type]
        (lambda: Server("test", principal="ann"), TypeError, "function of the context"),  # type: ignore[arg-type]
        (lambda: Server("test", lists={}), TypeError, r"lists must be ListOptions\(…\), got dict"),  # type: ignore[arg-type]
        (lambda: InputOptions(key=b"short"), ValueError, "got 5"),
        (lambda: InputOptions(ttl=float("inf")), ValueError, "finite"),
    ],
)
def test_a_server_checks_its_arguments(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_the_keys_of_a_server_are_in_no_repr() -> None:
    assert "kkkk" not in repr(InputOptions(key=b"k" * 32))


async def test_the_servers_details_reach_the_client() -> None:
    server = Server(DETAILS, instructions="Do")
    for revision in ("2025-11-25", "2026-07-28"):
        async with Client(server, mode=revision) as client:
            assert client.server_info == DETAILS
            assert client.instructions == "Do"


# --- `_meta` and icons -----------------------------------------------------------------------------------------------


def function() -> str:
    return "x"


OFFERS: dict[str, Callable[..., Any]] = {
    "tool 'function'": lambda **details: Server("s").add_tool(function, **details),
    "prompt 'function'": lambda **details: Server("s").add_prompt(function, **details),
    "resource 'x://y'": lambda **details: Server("s").add_resource("x://y", function, **details),
}
offers = pytest.mark.parametrize(("what", "offer"), OFFERS.items(), ids=OFFERS)


@offers
@pytest.mark.parametrize("key", ["-x", "com.mcp/x", "mcp.dev/x", "progressToken", "traceparent"])
def test_a_definition_with_a_bad_key_is_refused_where_it_is_made(
    what: str, offer: Callable[..., Any], key: str
) -> None:
    with pytest.raises(ValueError, match=f"{what}: the _meta key {key!r} "):
        offer(meta={key: 1})


def server_of(**details: Any) -> Server:
    return Server(types.Implementation(name="s", version="1", **details))


@pytest.mark.parametrize(("what", "offer"), [*OFFERS.items(), ("server 's'", server_of)])
def test_an_icon_that_clients_must_not_load_is_refused(what: str, offer: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=f"{what}: the icon 'file:///i.png' can't be used"):
        offer(icons=[types.Icon(src="file:///i.png")])


@both_eras
async def test_a_request_with_invalid_meta_keys_is_served(revision: str) -> None:
    """What a peer sends is never refused for a key."""
    server = Server("s")
    seen: list[dict[str, Any]] = []

    @server.tool
    def look(ctx: Context) -> None:
        seen.append(ctx.meta)

    odd = {"-x": 1, "com.mcp/x": 2, "a/b/c": 3}
    async with client_of(server, revision) as client:
        await client.request("tools/call", {"name": "look", "_meta": odd})
    assert odd.items() <= seen[0].items()
