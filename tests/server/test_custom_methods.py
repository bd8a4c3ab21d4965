"""What the protocol does not define: methods, notifications and extensions, on one server, in both eras."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
import trio
from hypothesis import given, strategies as st
from pydantic import BaseModel, ConfigDict

from tests.server.harness import LEGACY, MODERN, both_eras, client_of, every_revision
from trio_mcp import (
    CallOptions,
    Client,
    Context,
    Depends,
    McpError,
    NotificationContext,
    RemoteProtocolError,
    Server,
    SessionOptions,
)
from trio_mcp.eras.capabilities import declared_extensions
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.testing.strategies import json_values
from trio_mcp.types import RequestParams
from trio_mcp.types.error_codes import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
)

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
        ("a/b", Size, TypeError, "must be handled by a function"),
        ("a/b", lambda: None, TypeError, r"its function must accept \(params, ctx\)"),
        ("a/b", lambda a, b, c: None, TypeError, r"its function must accept \(params, ctx\).*'c'"),
    ],
)
def test_an_invalid_method_is_refused(name: str, function: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        measuring().add_method(name, function)


def test_an_invalid_notification_is_refused() -> None:
    server = Server("test")
    server.add_notification("com.example/ping", two)
    with pytest.raises(ValueError, match="the protocol defines"):
        server.add_notification("notifications/cancelled", two)
    with pytest.raises(ValueError, match=r"notification 'com\.example/ping' is already registered"):
        server.add_notification("com.example/ping", two)
    with pytest.raises(TypeError, match="its function must be async"):
        server.add_notification("com.example/sync", lambda params, ctx: None)  # type: ignore[arg-type,return-value]


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
    assert "invalid parameters for the notification 'com.example/area': height: Field required" in str(error)


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


# --- extensions (2026-07-28 `basic/versioning`) -----------------------------------------------------------------------


FEATURE = "com.example/feature"
OTHER = "com.example/other"


def serving() -> Server:
    server = Server("test", extensions={FEATURE: {"depth": 3}, OTHER: {}})

    @server.method("com.example/thing", extension=FEATURE)
    async def thing(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"client": ctx.client_extensions}

    @server.method("com.example/defer", extension=FEATURE)
    async def defer(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"resultType": "com.example/deferred", "ticket": 7}

    return server


@every_revision
async def test_both_sides_declare_extensions(revision: str) -> None:
    """Before 2026-07-28, too: capabilities are an open set there, and SEP-2133 shows them in the handshake."""
    async with client_of(serving(), revision, capabilities={"extensions": {FEATURE: {"mode": "fast"}}}) as client:
        assert client.extensions == {FEATURE: {"depth": 3}, OTHER: {}}
        assert client.capabilities.extensions == client.extensions
        assert (await client.request("com.example/thing"))["client"] == {FEATURE: {"mode": "fast"}}


@pytest.mark.parametrize("extensions", [{}, {OTHER: {}}])
async def test_a_client_without_the_extension_is_told_so(extensions: dict[str, Any]) -> None:
    """2026-07-28 `basic/index`: -32021 names what is missing; the eras before know no such error."""
    async with client_of(serving(), MODERN, capabilities={"extensions": extensions}) as client:
        with pytest.raises(McpError, match=f"needs the extension '{FEATURE}'") as caught:
            await client.request("com.example/thing")
    assert caught.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert caught.value.data == {"requiredCapabilities": {"extensions": {FEATURE: {}}}}
    async with client_of(serving(), LEGACY, capabilities={"extensions": extensions}) as client:
        with pytest.raises(McpError, match=r"unknown method 'com\.example/thing'") as caught:
            await client.request("com.example/thing")
    assert caught.value.code == METHOD_NOT_FOUND


async def test_a_result_type_of_an_extension() -> None:
    """`basic/index`, ResultType: known are those of the protocol and of the extensions that the client declares."""
    declared = {"extensions": {FEATURE: {"mode": "fast"}}}
    knowing = SessionOptions(calls=CallOptions(result_types=["com.example/deferred"]))
    async with client_of(serving(), capabilities=declared, options=knowing) as client:
        result = await client.request("com.example/defer")
        assert (result["resultType"], result["ticket"]) == ("com.example/deferred", 7)
        client.session.set_log_level("info")  # makes the era anew
        assert (await client.request("com.example/defer"))["ticket"] == 7
    async with client_of(serving(), capabilities=declared) as client:
        with pytest.raises(RemoteProtocolError, match=r"unknown resultType 'com\.example/deferred'"):
            await client.request("com.example/defer")


@both_eras
async def test_what_one_side_does_with_its_settings_does_not_reach_the_other(revision: str) -> None:
    settings: dict[str, Any] = {"depth": [3]}
    server = Server("test", extensions={FEATURE: settings})
    async with client_of(server, revision) as client:
        client.extensions[FEATURE]["depth"].append(4)
        settings["depth"].append(5)
    async with client_of(server, revision) as client:
        assert client.extensions == {FEATURE: {"depth": [3]}}


def test_a_method_belongs_to_an_extension_that_is_declared() -> None:
    with pytest.raises(ValueError, match=r"the extension 'com.example/feature' is not declared; pass extensions="):
        Server("test").method("com.example/thing", extension=FEATURE)(lambda params, ctx: None)


@pytest.mark.parametrize(
    ("extensions", "error", "message"),
    [
        ({"feature": {}}, ValueError, "'feature' is not a valid extension identifier: it must be a prefix"),
        *(
            ({name: {}}, ValueError, "is not a valid extension identifier")
            for name in ("com.example/", "/feature", "1com/feature", "com.example/a/b", 5)
        ),
        ({FEATURE: None}, TypeError, "the settings of the extension 'com.example/feature' must be a mapping"),
    ],
)
def test_an_invalid_extension_is_refused(extensions: Any, error: type[Exception], message: str) -> None:
    """2026-07-28 `basic/versioning`: an identifier is like a key of `_meta`, with a mandatory prefix."""
    with pytest.raises(error, match=message):
        Server("test", extensions=extensions)
    with pytest.raises(error, match=message):
        Client(Server("x"), capabilities={"extensions": extensions})


def test_result_types_belong_to_extensions() -> None:
    with pytest.raises(ValueError, match=r'pass capabilities=\{"extensions": …\} too'):
        Client(Server("x"), options=SessionOptions(calls=CallOptions(result_types=["com.example/deferred"])))
    with pytest.raises(TypeError, match="result_types must be a list of strings"):
        CallOptions(result_types="com.example/deferred")


@given(st.one_of(json_values(), st.dictionaries(st.just("extensions"), json_values())))
def test_malformed_declarations_are_left_out(value: Any) -> None:
    """Whatever a peer declares, reading it gives a mapping of identifiers to settings."""
    found = declared_extensions(value if isinstance(value, dict) else {"extensions": value})
    assert all(isinstance(settings, dict) for settings in found.values())
