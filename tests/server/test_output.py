"""What a tool returns or raises, as a result: content, structured content, values that were not declared, errors."""

import contextlib
import dataclasses
import enum
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Annotated, Any, Never, NoReturn

import pytest
import trio
import trio.testing
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from tests.server.harness import LEGACY, MODERN, both_eras, call, client_of, server_with, text_of, tool_of
from trio_mcp import Client, FunctionOptions, Image, Server, ToolError, TransportError, types
from trio_mcp.low_level import memory_link_pair

TEXT = types.TextContent(text="words")
IMAGE = types.ImageContent(data="aGk=", mime_type="image/png")
AUDIO = types.AudioContent(data="aGk=", mime_type="audio/wav")
LINK = types.ResourceLink(uri="file:///a", name="a")
EMBEDDED = types.EmbeddedResource(resource=types.TextResourceContents(uri="file:///a", text="words"))
BLOCKS = [TEXT, IMAGE, AUDIO, LINK, EMBEDDED]
Alias = TypeAliasType("Alias", list[types.TextContent | types.ImageContent])


class Point(BaseModel):
    x: int = Field(ge=0)
    y: int = Field(default=0, serialization_alias="Y")
    secret: str = Field(default="s", exclude=True)


class Subclass(Point):
    more: int = 1


def giving(value: Any, *annotation: Any) -> Any:
    """Return a tool that returns a value, with a return annotation or without."""

    def give() -> Any:
        return value

    give.__annotations__ = {"return": annotation[0]} if annotation else {}
    return give


UNDECLARED = object()
CONTENT: list[tuple[Any, Any, list[Any]]] = [
    *((UNDECLARED, block, [block]) for block in BLOCKS),
    *((type(block), block, [block]) for block in BLOCKS),
    (list[types.ContentBlock], BLOCKS, BLOCKS),
    (list[types.TextContent], [], []),
    (list[types.ContentBlock], (block for block in BLOCKS), BLOCKS),
    (tuple[str, types.ImageContent], ("words", IMAGE), [TEXT, IMAGE]),
    (list[str | types.ImageContent], ["words", IMAGE, "words"], [TEXT, IMAGE, TEXT]),
    (types.ImageContent | None, None, []),
    (types.ImageContent | str, "words", [TEXT]),
    (types.ImageContent | int, 3, [types.TextContent(text="3")]),
    (Annotated[types.ImageContent, "a note"], IMAGE, [IMAGE]),
    (Alias, [IMAGE], [IMAGE]),
    (types.TextContent, {"type": "text", "text": "words"}, [TEXT]),
    *((annotation, None, []) for annotation in (None, type(None), Any, Never, NoReturn)),
    (UNDECLARED, None, []),
    (UNDECLARED, "words", [TEXT]),
    (UNDECLARED, 3, [types.TextContent(text="3")]),
    (UNDECLARED, ["words", IMAGE, 3], [TEXT, IMAGE, types.TextContent(text="3")]),
    (UNDECLARED, (IMAGE, TEXT), [IMAGE, TEXT]),
    (UNDECLARED, [], [types.TextContent(text="[]")]),
    (UNDECLARED, {"a": [1]}, [types.TextContent(text='{"a":[1]}')]),
    (UNDECLARED, Point(x=1), [types.TextContent(text='{"x":1,"Y":0}')]),
    (UNDECLARED, types.Root(uri="file:///"), [types.TextContent(text='{"uri":"file:///"}')]),
    (UNDECLARED, "lone \udc80", [types.TextContent(text="lone \\udc80")]),
    (UNDECLARED, "größer", [types.TextContent(text="größer")]),
]


@pytest.mark.parametrize(("annotation", "value", "content"), CONTENT)
async def test_content_is_not_structured(annotation: Any, value: Any, content: list[Any]) -> None:
    """Without a return annotation the value decides."""
    function = giving(value) if annotation is UNDECLARED else giving(value, annotation)
    assert tool_of(function).output_schema is None
    result = await call(function, {})
    assert result.content == content
    assert "structured_content" not in result.model_fields_set


@both_eras
async def test_structured_content_comes_with_its_json_as_text(revision: str) -> None:
    """2026-07-28 `server/tools`, Structured Content: a SHOULD, for older clients."""
    result = await call(giving(Point(x=1), Point), {}, revision)
    assert result.structured_content == {"x": 1, "Y": 0}
    assert text_of(result) == '{"x":1,"Y":0}'
    assert text_of(await call(giving([1, 2], list[int]), {}, revision)) == "[1,2]"
    assert text_of(await call(giving("Wörter", str), {}, revision)) == "Wörter"


async def test_only_what_is_declared_leaves_the_server() -> None:
    result = await call(giving(Subclass(x=1), Point), {})
    assert result.structured_content == {"x": 1, "Y": 0}


async def test_a_sync_function_that_returns_something_to_await() -> None:
    async def answer() -> int:
        return 3

    def with_awaitable() -> Awaitable[int]:
        return answer()

    def with_coroutine() -> Coroutine[Any, Any, int]:
        return answer()

    for function in (with_awaitable, with_coroutine):
        assert tool_of(function).output_schema == tool_of(giving(3, int)).output_schema
        assert (await call(function, {})).data == 3


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Pair:
    left: int


def changed() -> Point:
    point = Point(x=1)
    point.x = "no number"  # type: ignore[assignment]
    return point


def failing() -> Iterator[Any]:
    yield 1
    raise ValueError("half way")


WRONG = [
    (int, "words"),
    (int, None),
    (str, 3),
    (list[int], ["a"]),
    (Point, {"x": "a"}),
    (Point, Pair(1)),
    (Point, changed()),
    (Colour, "blue"),
    (float, float("nan")),
    (dict[str, float], {"a": float("inf")}),
    (dict[str, bytes], {"a": b"\xff"}),
    (str, "lone \udc80"),
    (types.TextContent, 3),
    (types.TextContent, "words"),
    (list[types.TextContent], [IMAGE]),
    (types.CallToolResult, "words"),
]


@both_eras
@pytest.mark.parametrize(("annotation", "value"), WRONG, ids=lambda value: str(value)[:20])
async def test_a_value_that_is_not_of_the_declared_type_is_the_tools_error(
    annotation: Any, value: Any, revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Servers MUST provide structured results that conform (`server/tools`, Output Schema). Details go to the log."""
    result = await call(giving(value, annotation), {}, revision)
    assert result.is_error
    assert text_of(result) == "the tool 'tool' failed"
    assert "structured_content" not in result.model_fields_set
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


@pytest.mark.parametrize("value", [object(), [object()], failing()])
async def test_an_undeclared_value_without_a_json_form_is_the_tools_error(value: Any) -> None:
    assert (await call(giving(value), {})).is_error


COMPLETE = types.CallToolResult(content=[TEXT], structured_content={"x": 1}, meta={"example.com/a": 1})


@both_eras
@pytest.mark.parametrize("annotation", [(), (types.CallToolResult,), (types.CallToolResult | str,)])
async def test_a_complete_result_passes_as_it_is(annotation: tuple[Any, ...], revision: str) -> None:
    assert tool_of(giving(COMPLETE, *annotation)).output_schema is None
    result = await call(giving(COMPLETE, *annotation), {}, revision)
    assert (result.content, result.structured_content) == (COMPLETE.content, {"x": 1})
    assert result.meta["example.com/a"] == 1
    failed = types.CallToolResult(content=[TEXT], is_error=True)
    assert (await call(giving(failed, *annotation), {}, revision)).is_error


@pytest.mark.parametrize("details", [{}, {"output_schema": {"type": "object", "properties": {"x": {"minimum": 0}}}}])
async def test_a_complete_result_conforms_to_the_output_schema_too(details: dict[str, Any]) -> None:
    def give(structured: dict[str, Any] | None, is_error: bool) -> Point:
        given = {} if structured is None else {"structured_content": structured}
        return types.CallToolResult(content=[TEXT], is_error=is_error, **given)  # type: ignore[return-value]

    async def of(structured: Any, is_error: bool = False) -> Any:
        return await call(give, {"structured": structured, "is_error": is_error}, **details)

    assert (await of({"x": 1})).structured_content == {"x": 1}
    assert (await of({"x": -1})).is_error
    assert text_of(await of(None)) == "the tool 'tool' failed"
    assert text_of(await of(None, is_error=True)) == "words"


async def test_a_custom_output_schema_is_shown_and_checked() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    assert tool_of(giving({"x": 1}), output_schema=schema).output_schema == schema
    result = await call(giving({"x": 1}), {}, output_schema=schema)
    assert (result.structured_content, text_of(result)) == ({"x": 1}, '{"x":1}')
    assert (await call(giving(Pair(1)), {}, output_schema=schema)).is_error
    assert (await call(giving(Point(x=1)), {}, output_schema=schema)).structured_content == {"x": 1, "Y": 0}
    assert (await call(giving(object()), {}, output_schema=schema)).is_error


@pytest.mark.parametrize(("schema", "value"), [({"type": "array"}, [1]), ({"type": ["null", "string"]}, None), ({}, 3)])
async def test_structured_content_other_than_an_object_is_for_the_modern_era(schema: Any, value: Any) -> None:
    """2026-07-28 allows any JSON value; until 2025-11-25 an output schema must describe an object."""
    server = Server("test")
    server.add_tool(giving(value), name="tool", output_schema=schema)
    async with client_of(server, MODERN) as client:
        assert (await client.list_tools()).tools[0].output_schema == schema
        result = await client.call_tool("tool")
        assert result.structured_content == value
        assert "structured_content" in result.model_fields_set
    async with client_of(server, LEGACY) as client:
        assert (await client.list_tools()).tools[0].output_schema is None
        result = await client.call_tool("tool")
        assert not result.is_error
        assert "structured_content" not in result.model_fields_set
        assert len(result.content) == 1


@pytest.mark.parametrize(
    ("schema", "error"), [(True, TypeError), ({"type": 3}, ValueError), ({"$ref": "http://x/"}, ValueError)]
)
def test_an_unusable_output_schema_is_refused(schema: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Server("test").add_tool(giving(1), name="tool", output_schema=schema)


async def test_text_that_utf8_cannot_encode_is_escaped() -> None:
    """File names and captured output may hold lone surrogates; the answer must still be JSON."""

    def fail() -> None:
        raise ToolError("no file \udcff")

    assert text_of(await call(fail, {})) == "no file \\udcff"


# --- structured_output -----------------------------------------------------------------------------------------------


UNSTRUCTURED: list[tuple[Any, Any, list[Any]]] = [
    (str, "words", [TEXT]),
    (str, "", [types.TextContent(text="")]),
    (str, "lone \udc80", [types.TextContent(text="lone \\udc80")]),
    (int, 3, [types.TextContent(text="3")]),
    (int | None, None, []),
    (list[int], [1, 2], [types.TextContent(text="[1,2]")]),
    (list[str], ["words"], [types.TextContent(text='["words"]')]),
    (Point, Subclass(x=1), [types.TextContent(text='{"x":1,"Y":0}')]),  # only what is declared leaves the server
    (list, [IMAGE, "words"], [IMAGE, TEXT]),
    (object, IMAGE, [IMAGE]),
    (types.ImageContent, IMAGE, [IMAGE]),
    (None, None, []),
    (Any, {"a": 1}, [types.TextContent(text='{"a":1}')]),
]


@pytest.mark.parametrize(("annotation", "value", "content"), UNSTRUCTURED)
async def test_a_tool_or_a_server_can_do_without_structured_output(
    annotation: Any, value: Any, content: list[Any]
) -> None:
    servers = [Server("test"), Server("test", functions=FunctionOptions(structured_output=False))]
    servers[0].add_tool(giving(value, annotation), name="tool", structured_output=False)
    servers[1].add_tool(giving(value, annotation), name="tool")
    for server in servers:
        async with client_of(server) as client:
            assert (await client.list_tools()).tools[0].output_schema is None
            result = await client.call_tool("tool")
            assert result.content == content
            assert "structured_content" not in result.model_fields_set


async def test_without_structured_output_the_return_type_still_holds() -> None:
    for annotation, value in ((int, "words"), (Point, Pair(1)), (list[int], ["a"]), (Point, changed())):
        assert (await call(giving(value, annotation), {}, structured_output=False)).is_error


async def test_a_tool_may_be_structured_where_its_server_is_not() -> None:
    server = Server("test", functions=FunctionOptions(structured_output=False))
    server.add_tool(giving(3, int), name="a", structured_output=True)
    server.add_tool(giving({"x": 1}), name="b", output_schema={"type": "object"})
    async with client_of(server) as client:
        assert (await client.call_tool("a")).structured_content == {"result": 3}
        assert (await client.call_tool("b")).structured_content == {"x": 1}
        assert all(tool.output_schema for tool in (await client.list_tools()).tools)


@pytest.mark.parametrize(("annotation", "value"), [(None, None), (Any, [1]), (int, 3)])
async def test_structured_output_can_be_demanded(annotation: Any, value: Any) -> None:
    """As in the official SDK: also of types that say little."""
    assert (await call(giving(value, annotation), {}, structured_output=True)).structured_content == {"result": value}


def test_a_demand_that_cannot_be_met_is_refused() -> None:
    add = functools.partial(Server("test").add_tool, name="tool")
    for function in (giving(1), giving(IMAGE, types.ImageContent), giving([], list[Image])):
        with pytest.raises(TypeError, match=r"tool 'tool' has structured_output=True, so it needs a return type"):
            add(function, structured_output=True)
    with pytest.raises(ValueError, match="has an output_schema, and so can't have structured_output=False"):
        add(giving(1, int), output_schema={}, structured_output=False)
    with pytest.raises(TypeError, match="structured_output must be True or False, got 'no'"):
        add(giving(1, int), structured_output="no")
    with pytest.raises(TypeError, match="structured_output must be True or False, got 'no'"):
        FunctionOptions(structured_output="no")  # type: ignore[arg-type]


# --- exceptions that a tool raises -----------------------------------------------------------------------------------


def raising(exc: BaseException, *, sync: bool = False) -> Callable[[], Any]:
    if sync:

        def tool() -> int:
            raise exc

        return tool

    async def async_tool() -> int:
        raise exc

    return async_tool


sync_and_async = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


@both_eras
@sync_and_async
@pytest.mark.parametrize(
    "exc",
    [
        ToolError("no seats left"),
        ExceptionGroup("outer", [ExceptionGroup("inner", [ToolError("no seats left")])]),
    ],
    ids=["alone", "from nurseries"],
)
async def test_a_tool_error_is_for_the_model(
    revision: str, sync: bool, exc: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not the server's fault, so nothing is logged."""
    result = await call(raising(exc, sync=sync), {}, revision)
    assert result.is_error
    assert text_of(result) == "no seats left"
    assert not caplog.records


@pytest.mark.parametrize("kind", [trio.TooSlowError, StopIteration, trio.ClosedResourceError, TimeoutError, None])
@sync_and_async
async def test_any_other_exception_names_only_the_tool_and_is_logged_once(
    kind: Any, sync: bool, caplog: pytest.LogCaptureFixture
) -> None:
    two = ExceptionGroup("two", [ToolError("a secret"), ToolError("another")])
    result = await call(raising(kind("a secret") if kind else two, sync=sync), {})
    assert result.is_error
    assert text_of(result) == "the tool 'tool' failed"
    assert len(caplog.records) == 1


async def test_expose_errors_shows_why_a_value_is_invalid() -> None:
    def tool() -> int:
        return "three"  # type: ignore[return-value]

    async with client_of(server_with(tool, expose_errors=True)) as client:
        text = text_of(await client.call_tool("tool"))
    assert text.startswith("the tool 'tool' failed: the return value is not of the declared type:")


class Stop(BaseException):
    """Such as KeyboardInterrupt and SystemExit; pytest has its own ideas about those two."""


@sync_and_async
@pytest.mark.parametrize("kind", [Stop, SystemExit, KeyboardInterrupt])
async def test_exceptions_that_end_the_program_are_not_swallowed(kind: type[BaseException], sync: bool) -> None:
    """The very object that was raised leaves `serve`."""
    exc = kind("stop")
    caught: list[BaseException] = []
    with trio.fail_after(10):
        async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:

            async def serve() -> None:
                try:
                    await server_with(raising(exc, sync=sync)).serve(theirs)
                except kind as reached:
                    caught.append(reached)

            async def use() -> None:
                async with Client(lambda: contextlib.nullcontext(ours), mode="legacy") as client:
                    with pytest.raises(TransportError):
                        await client.call_tool("tool" if sync else "async_tool")

            nursery.start_soon(serve)
            nursery.start_soon(use)
    assert caught == [exc]


async def test_exceptions_that_end_the_program_leave_the_block_of_an_in_memory_client() -> None:
    with pytest.raises(Stop):
        async with Client(server_with(raising(Stop())), mode="legacy") as client:
            with contextlib.suppress(TransportError):
                await client.call_tool("async_tool")
            await trio.sleep_forever()  # the block is cancelled
