"""What newcomers get wrong in a server and a client, and the one error that says what to write."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from trio_mcp import Client, Context, Server
from trio_mcp.middleware import Timing

server: Any = Server("s")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


async def no_arguments() -> None: ...


async def one_argument(context: Context) -> None: ...


async def three(context: Context, call_next: Any, more: int) -> None: ...


class Method:
    async def __call__(self, context: Context) -> None: ...


def no_hint(ctx, a: int) -> int:  # type: ignore[no-untyped-def]
    return a


def another_name(a: int, context) -> int:  # type: ignore[no-untyped-def]
    return a


MIDDLEWARE = r"a middleware must be an async function of \(context, call_next\)"
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no name": (lambda: server.__class__(), r"^Server\.__init__\(\) missing 1 required positional argument: 'name'$"),
    "a version that is a number": (lambda: server.__class__("x", version=1), "^version must be a string, got 1$"),
    **{
        f"middleware {getattr(each, '__name__', 'object')}": (
            lambda each=each: server.__class__("x", middleware=[each]),  # type: ignore[misc]
            MIDDLEWARE,
        )
        for each in (no_arguments, one_argument, three, Method())
    },
    "ctx without a hint": (
        lambda: server.tool(no_hint),
        "the parameter 'ctx' has no type hint: write `ctx: Context` for the context of the request, or the type of",
    ),
    "context without a hint": (lambda: server.tool(another_name), "write `context: Context`"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_where_it_is_written(what: str) -> None:
    make, said = REFUSED[what]
    with pytest.raises(TypeError, match=said):
        make()


def test_what_looks_alike_is_right() -> None:
    made = Server("x", middleware=[Timing(), lambda context, call_next: call_next()])

    @made.tool
    def with_both(ctx: Context, context) -> str:  # type: ignore[no-untyped-def]
        return str(context)

    @made.tool
    def a_text(context: str, ctx: int = 1) -> str:
        return context


async def test_a_tools_arguments_as_keywords_are_pointed_to_the_dict() -> None:
    call: Any
    async with Client(server) as client:
        for call in (client.call_tool, client.call_tool_once, client.get_prompt):
            name = call.__name__
            with pytest.raises(TypeError, match=rf"'a': pass the arguments as a dict, {name}\(…, {{'a': …}}\)$"):
                await call("add", a=1, b=2)
        # A name that is spelt like a keyword is most likely meant to be one.
        wrong: Any = client.call_tool
        with pytest.raises(TypeError, match="did you mean 'timeout'"):
            await wrong("add", {"a": 1, "b": 2}, timeot=3)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("set_state", "'Context' object has no attribute 'set_state': ctx.update_user_state keeps data for the user"),
        ("stat", "'Context' object has no attribute 'stat'"),
    ],
)
async def test_what_a_context_lacks_is_said_under_the_name_that_the_user_knows(
    name: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = Server("s")

    @wrong.tool
    def tool(ctx: Context) -> str:
        return str(getattr(ctx, name))

    async with Client(wrong) as client:
        assert (await client.call_tool("tool")).is_error
    assert f"AttributeError: {said}" in caplog.text


def _frames(record: Any) -> list[str]:
    return re.findall(r", in (\S+)$", "".join(traceback.format_exception(*record.exc_info)), re.MULTILINE)


async def test_the_log_of_a_crash_shows_the_users_frames_alone(caplog: pytest.LogCaptureFixture) -> None:
    crashing = Server("s")

    def below() -> None:
        raise KeyError("x")

    @crashing.tool
    def sync() -> None:
        below()

    @crashing.tool
    async def in_a_task() -> None:
        below()

    async with Client(crashing) as client:
        for name in ("sync", "in_a_task"):
            caplog.clear()
            assert (await client.call_tool(name)).is_error
            (record,) = caplog.records
            assert _frames(record) == [name, "below"]


async def test_asyncio_in_a_tool_is_told_what_this_server_runs_on(caplog: pytest.LogCaptureFixture) -> None:
    foreign = Server("s")

    @foreign.tool
    async def sleep() -> None:
        await asyncio.sleep(0.01)

    async with Client(foreign) as client:
        assert (await client.call_tool("sleep")).is_error
    assert "this server runs on Trio: an asyncio library has no event loop here" in caplog.text
