"""Methods and notifications that the protocol does not define: on one server, in both eras, like any other."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
import trio
from pydantic import BaseModel, ConfigDict

from tests.server.harness import both_eras, client_of
from trio_mcp import Context, Depends, McpError, NotificationContext, RemoteProtocolError, Server, SessionOptions
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.types import RequestParams
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS

MEASURE = "com.example/measure"


class Area(BaseModel):
    model_config = ConfigDict(extra="forbid")

    width: float
    height: float


class Size(BaseModel):
    square_metres: float


def measuring() -> Server:
    server = Server("test")

    @server.method(MEASURE, params=Area, result=Size)
    async def measure(area: Area, ctx: Context) -> Size:
        return Size(square_metres=area.width * area.height)

    return server


# --- requests --------------------------------------------------------------------------------------------------------


@both_eras
async def test_models_in_and_out(revision: str) -> None:
    """A strict model, too: the `_meta` that every modern request carries is not for it."""
    async with client_of(measuring(), revision) as client:
        assert await client.request(MEASURE, Area(width=2, height=3), Size) == Size(square_metres=6)
        plain = await client.request(MEASURE, {"width": 2, "height": 4})
        assert plain["square_metres"] == 8
        with pytest.raises(McpError, match=f"invalid parameters for '{MEASURE}': height: Field required") as caught:
            await client.request(MEASURE, {"width": 2})
        assert caught.value.code == INVALID_PARAMS
        with pytest.raises(RemoteProtocolError, match=f"the result of '{MEASURE}' is not a valid Area"):
            await client.request(MEASURE, Area(width=2, height=3), Area)


@both_eras
async def test_plain_data_and_sync_functions(revision: str) -> None:
    """Without models a function takes and returns plain data; None is an empty result. The context is the request's."""
    server = Server("test")
    seen: list[Any] = []

    @server.method("com.example/plain")
    def plain(params: dict[str, Any], ctx: Context) -> None:
        seen.append((params, ctx.method, ctx.meta.get("com.example/key")))

    async with client_of(server, revision) as client:
        result = await client.request("com.example/plain", {"a": 1, "_meta": {"com.example/key": "value"}})
        assert result.keys() <= {"_meta", "resultType"}
        await client.request("com.example/plain")
    assert seen == [({"a": 1}, "com.example/plain", "value"), ({}, "com.example/plain", None)]


@both_eras
async def test_a_wire_model_sees_the_meta(revision: str) -> None:
    server = Server("test")

    @server.method("com.example/wire", params=RequestParams)
    async def wire(params: RequestParams, ctx: Context) -> dict[str, Any]:
        assert params.meta is not None
        return {"token": params.meta.get("com.example/key")}

    async with client_of(server, revision) as client:
        assert (await client.request("com.example/wire", {"_meta": {"com.example/key": 5}}))["token"] == 5


@both_eras
async def test_middleware_dependencies_and_progress(revision: str) -> None:
    """Whatever surrounds the protocol's own methods surrounds these."""
    events: list[str] = []

    async def middleware(context: Context, call_next: Any) -> dict[str, Any]:
        events.append(f"> {context.method}")
        result: dict[str, Any] = await call_next()
        return {**result, "by": "middleware"}

    async def resource() -> AsyncIterator[str]:
        events.append("open")
        yield "resource"
        events.append("close")

    server = Server("test", middleware=[middleware])

    @server.method("com.example/thing")
    async def thing(params: dict[str, Any], ctx: Context, given: Annotated[str, Depends(resource)]) -> dict[str, Any]:
        await ctx.report_progress(1, 2)
        return {"given": given}

    async with client_of(server, revision) as client:
        result = await client.request("com.example/thing", on_progress=lambda progress: events.append("progress"))
    assert (result["given"], result["by"]) == ("resource", "middleware")
    assert sorted(events) == sorted(["> com.example/thing", "open", "close", "progress"])


@both_eras
async def test_a_result_that_is_not_what_was_declared_is_not_told(revision: str) -> None:
    server = Server("test")

    @server.method("com.example/wrong", result=Size)
    async def wrong(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"secret": 1}

    @server.method("com.example/nothing")
    async def nothing(params: dict[str, Any], ctx: Context) -> Any:
        return 5

    async with client_of(server, revision) as client:
        for name in ("wrong", "nothing"):
            with pytest.raises(McpError) as caught:
                await client.request(f"com.example/{name}")
            assert caught.value.code == INTERNAL_ERROR
            assert caught.value.message == f"the method 'com.example/{name}' failed"


async def two(params: Any, ctx: Any) -> None: ...


@pytest.mark.parametrize(
    ("name", "function", "error", "message"),
    [
        ("tools/list", two, ValueError, "the protocol defines 'tools/list'"),
        ("tasks/get", two, ValueError, "the protocol defines 'tasks/get'"),  # of another revision
        ("initialize", two, ValueError, "the protocol defines 'initialize'"),
        (MEASURE, two, ValueError, f"method '{MEASURE}' is already registered"),
        ("rpc.discover", two, ValueError, "JSON-RPC reserves names that begin with 'rpc.'"),
        ("", two, ValueError, "a method's name must be a non-empty string"),
        ("a/b", Size, TypeError, "must be answered by a function"),
        ("a/b", lambda: None, TypeError, r"its function must accept \(params, ctx\)"),
        ("a/b", lambda a, b, c: None, TypeError, r"its function must accept \(params, ctx\).*'c'"),
    ],
)
def test_an_invalid_method_is_refused(name: str, function: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        measuring().add_method(name, function)


@pytest.mark.parametrize(
    ("name", "function", "error", "message"),
    [
        ("notifications/cancelled", two, ValueError, "the protocol defines"),
        ("com.example/ping", two, ValueError, "notification 'com.example/ping' is already registered"),
        ("com.example/sync", lambda params, ctx: None, TypeError, "its function must be async"),
    ],
)
def test_an_invalid_notification_is_refused(name: str, function: Any, error: type[Exception], message: str) -> None:
    server = Server("test")
    server.add_notification("com.example/ping", two)
    with pytest.raises(error, match=message):
        server.add_notification(name, function)


@pytest.mark.parametrize("wrong", [{"params": dict}, {"result": {"type": "object"}}])
def test_models_must_be_models(wrong: Any) -> None:
    with pytest.raises(TypeError, match="params and result must be pydantic models"):
        Server("test").add_method("a/b", two, **wrong)


# --- notifications ---------------------------------------------------------------------------------------------------


@both_eras
async def test_a_client_notifies_the_server(revision: str) -> None:
    """In order, with the lifespan's state; an invalid one goes to `on_error`, and one that fails costs only itself."""
    seen: list[Any] = []
    errors: list[RemoteProtocolError] = []
    done = trio.Event()

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        yield "state"

    server = Server("test", lifespan=lifespan, options=SessionOptions(on_error=errors.append))

    @server.notification("com.example/area", params=Area)
    async def area(params: Area, ctx: NotificationContext) -> None:
        seen.append((params.width, ctx.method, ctx.params["height"], ctx.state))
        if params.width == 2:
            raise ValueError("failed")

    @server.notification("com.example/done")
    async def finish(params: dict[str, Any], ctx: NotificationContext) -> None:
        assert params == {}
        done.set()

    async with client_of(server, revision) as client:
        await client.notify("com.example/unknown")
        await client.notify("com.example/area", {"width": 1})
        for width in (2, 3):
            await client.notify("com.example/area", Area(width=width, height=1))
        await client.notify("com.example/done", {"_meta": {}})
        await done.wait()
    assert seen == [(width, "com.example/area", 1, "state") for width in (2, 3)]
    (error,) = errors
    assert "invalid parameters of the notification 'com.example/area': height: Field required" in str(error)


@both_eras
async def test_a_handler_notifies_the_client(revision: str) -> None:
    """It goes with its request: after the response nothing is sent."""
    server = Server("test")
    contexts: list[Context] = []
    noted: list[Notification] = []
    last = trio.Event()

    def on_message(notification: Notification) -> None:
        noted.append(notification)
        if (notification.params or {}).get("n") == 3:
            last.set()

    @server.method("com.example/count")
    async def count(params: dict[str, Any], ctx: Context) -> None:
        contexts.append(ctx)
        await ctx.notify("com.example/number", {"n": params["n"]})
        await ctx.notify("com.example/size", Size(square_metres=1))

    async with client_of(server, revision, on_message=on_message) as client:
        await client.request("com.example/count", {"n": 1})
        await contexts[0].notify("com.example/number", {"n": 2})
        await client.request("com.example/count", {"n": 3})
        await last.wait()
    assert [each.params for each in noted if each.method == "com.example/number"] == [{"n": 1}, {"n": 3}]
    assert {"square_metres": 1.0} in [each.params for each in noted]


async def test_the_protocols_own_notifications_cannot_be_sent_by_hand() -> None:
    server = Server("test")

    @server.method("com.example/try")
    async def try_it(params: dict[str, Any], ctx: Context) -> None:
        with pytest.raises(ValueError, match="the protocol defines 'notifications/message'"):
            await ctx.notify("notifications/message", {})
        with pytest.raises(TypeError, match="params must be a model or a mapping"):
            await ctx.notify("com.example/x", [1])  # type: ignore[arg-type]

    async with client_of(server) as client:
        await client.request("com.example/try")
