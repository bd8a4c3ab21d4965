"""Wrong arguments are refused alike everywhere: `TypeError` for a wrong type or keyword, `ValueError` for a value."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import re
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any, is_typeddict

import attrs
import pytest
import trio
from pydantic import BaseModel

import trio_mcp
from trio_mcp import (
    Answers,
    Backoff,
    CacheHint,
    CallOptions,
    Client,
    ClientGroup,
    ClientOptions,
    FunctionOptions,
    GroupOptions,
    HttpOptions,
    HttpServerParameters,
    HttpSettings,
    InputOptions,
    ListOptions,
    MemoryEventStore,
    Principal,
    ProxyOptions,
    ProxyServer,
    ResponseCache,
    Server,
    ServerOptions,
    ServeSettings,
    SessionOptions,
    SocketSettings,
    StdioServerParameters,
)
from trio_mcp._door import DOORS
from trio_mcp._keywords import FOREIGN
from trio_mcp._settings import completed, settings_of
from trio_mcp.auth import ResourceOptions, TokenOptions
from trio_mcp.auth.testing import AuthoritySettings
from trio_mcp.conformance import CheckOptions, ClientCheckOptions, ServerCheckOptions
from trio_mcp.low_level import ClientSession, HandlerOptions, memory_link_pair

CLASSES: tuple[Any, ...] = (
    Backoff,
    CacheHint,
    CallOptions,
    FunctionOptions,
    HandlerOptions,
    InputOptions,
    ListOptions,
    SessionOptions,
    functools.partial(Answers),
    functools.partial(StdioServerParameters, "true"),
)


def numbers() -> Iterator[Any]:
    """Every number among the fields of the options."""
    for make in CLASSES:
        kind = getattr(make, "func", make)
        for field in attrs.fields(kind):
            if field.init and str(field.type).partition(" ")[0] in ("int", "float"):
                yield pytest.param(make, field.name, id=f"{kind.__name__}.{field.name}")
    for name in ("max_entries", "max_bytes", "stale_if_error"):
        yield pytest.param(ResponseCache, name, id=f"ResponseCache.{name}")
    for name in ("max_events", "max_bytes", "max_age"):
        yield pytest.param(MemoryEventStore, name, id=f"MemoryEventStore.{name}")
    yield pytest.param(functools.partial(ClientGroup, {}), "max_wait", id="ClientGroup.max_wait")
    for make, settings in (
        (HttpOptions, HttpSettings),
        (functools.partial(completed_of, SocketSettings), SocketSettings),
    ):
        for name, setting in settings_of(settings).items():
            if type(setting.default) in (int, float):
                yield pytest.param(make, name, id=f"{settings.__name__}.{name}")


def completed_of(kind: type, **given: Any) -> Any:
    return completed(kind, given)


@pytest.mark.parametrize(("make", "name"), [*numbers()])
def test_numbers_are_checked(make: Callable[..., Any], name: str) -> None:
    for wrong, error in (("5", TypeError), (True, TypeError), ([], TypeError), (-1, ValueError)):
        with pytest.raises(error):
            make(**{name: wrong})
    with pytest.raises((TypeError, ValueError)):  # NaN is a float, and no number of seconds
        make(**{name: math.nan})


TOOL = Server("test").add_tool


@pytest.mark.parametrize(
    ("make", "name", "wrong_value"),
    [
        (Server, "name", ""),
        (functools.partial(Server, "test"), "revisions", ["2024-01-01"]),
        (Server("test").run, "transport", "smoke"),
        (functools.partial(Client, "https://x.example"), "mode", "newest"),
        (functools.partial(Client, "https://x.example"), "log_level", "loud"),
        (functools.partial(ClientGroup, {}), "require", "most"),
        (functools.partial(Answers, elicitation=print), "elicitation_modes", ["voice"]),
        (functools.partial(Answers, sampling=print), "sampling_features", ["smell"]),
        (CacheHint, "scope", "shared"),
        (functools.partial(HttpServerParameters, "https://x.example"), "kind", "smoke"),
        (functools.partial(StdioServerParameters, "true"), "stderr", "inherti"),
        (StdioServerParameters, "command", ""),
        (Principal, "subject", ""),
        (functools.partial(TOOL, print), "name", "a b"),
        (functools.partial(TOOL, print), "input_schema", {}),
        (functools.partial(Server("test").add_prompt, print), "name", ""),
        (functools.partial(Server("test").add_resource, "x://y", print), "name", ""),
        (functools.partial(Server("test").add_resource, "x://y", print), "size", -1),
    ],
)
def test_strings_and_choices_are_checked(make: Callable[..., Any], name: str, wrong_value: Any) -> None:
    for wrong, error in ((3.5, TypeError), (wrong_value, ValueError)):
        with pytest.raises(error):
            make(**{name: wrong})


async def later(*arguments: object) -> None: ...


class Later:
    async def __call__(self, *arguments: object) -> None: ...


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (SessionOptions, "on_request"),
        (SessionOptions, "on_alert"),
        (functools.partial(ClientGroup, {}), "on_status"),
    ],
)
def test_a_function_whose_result_is_not_awaited_must_be_sync(make: Callable[..., Any], name: str) -> None:
    """An async one would never run."""
    make(**{name: print})
    for wrong in (later, functools.partial(later, 1), Later(), "print"):
        with pytest.raises(TypeError, match=f"{name} must be"):
            make(**{name: wrong})


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (SessionOptions, "on_error"),
        (functools.partial(Client, "https://x.example"), "on_log"),
        (functools.partial(Client, "https://x.example"), "on_message"),
    ],
)
def test_a_function_that_may_be_async_must_be_callable(make: Callable[..., Any], name: str) -> None:
    make(**{name: later})
    with pytest.raises(TypeError, match=f"{name} must be callable, got str"):
        make(**{name: "print"})


# --- unknown keyword arguments are refused, and the error says what to write ------------------------------------------


SERVER = Server("test")


class Mine(Server):
    pass


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: Server("s", host="::"), r"Server\(\) .* 'host': give it to run\('http', host=…\)"),  # type: ignore[arg-type]
        (lambda: Server("s", titel="S"), r"Server\(\) .* 'titel'; it takes name, version, "),  # type: ignore[arg-type]
        (lambda: Server("s", title="S"), r"Server\(\) .*: write name=types\.Implementation"),  # type: ignore[arg-type]
        (lambda: Mine("s", opitons=1), r"Mine\(\) .*; did you mean 'options'\?"),  # type: ignore[arg-type]
        (lambda: ProxyServer(SERVER, tools=[]), r"ProxyServer\(\) .* 'tools'; it takes target, "),  # type: ignore[arg-type]
        (lambda: ProxyServer(SERVER, client={"timout": 5}), r"Client\(\) .*; did you mean 'timeout'\?$"),  # type: ignore[typeddict-unknown-key]
        (lambda: Client(SERVER, elicitation_handler=print), r"Client\(\) .*: write answers=Answers\(elicitation=…\)$"),  # type: ignore[arg-type]
        (lambda: Client(SERVER, init_timeout=5), r"Client\(\) .*: write options=.*\(connect_timeout=…\)\)$"),  # type: ignore[arg-type]
        (lambda: Client(SERVER, answer=print), r"Client\(\) .*; did you mean 'answers'\?$"),  # type: ignore[arg-type]
        (lambda: ClientGroup({}, log_handler=print), r"ClientGroup\(\) .*: write on_log=…$"),  # type: ignore[call-arg]
        (lambda: ClientGroup({}, max_wai=5), r"ClientGroup\(\) .*; did you mean 'max_wait'\?$"),  # type: ignore[call-arg]
        (lambda: ClientGroup({"a": SERVER}, per_server={"a": {"modes": ""}}), r"server 'a': Client\(\) .* 'mode'\?$"),  # type: ignore[typeddict-unknown-key]
        (lambda: trio.run(partial(ClientGroup({}).add, "a", SERVER, modes="")), r"ClientGroup\.add\(\) .* 'mode'\?$"),
        (lambda: SERVER.run("http", stateless_http=True), r"Server\.run\(\) .*: write stateless=True$"),  # type: ignore[call-arg]
        (lambda: SERVER.run(show_banner=False), r"Server\.run\(\) .* 'show_banner': there is no banner$"),
        (lambda: SERVER.mount(SERVER, namespace="a"), r"Server\.mount\(\) .* 'namespace': write prefix=…$"),  # type: ignore[arg-type]
        (lambda: SERVER.run(port=5), r"Server\.run\('stdio'\) takes no 'port': write run\('http', port=…\)$"),
        (lambda: trio.run(partial(SERVER.serve_http, bort=5)), r"Server\.serve_http\(\) .*; did you mean 'port'\?$"),
        (lambda: trio.run(partial(ProxyServer(SERVER).serve_sse, json_response=True)), r"ProxyServer\.serve_sse\(\) "),
        (lambda: trio.run(SERVER.asgi_app(pat="/").__aenter__), r"Server\.asgi_app\(\) .*'path'\?$"),  # type: ignore[call-arg]
    ],
)
def test_an_unknown_keyword_is_refused(call: Callable[[], Any], error: str) -> None:
    with pytest.raises(TypeError, match=f"^{error}"):
        call()


MOST_PARAMETERS = 12

NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

MORE: dict[str, str] = {}
"""Public functions that have more, and why."""

SURFACES = (*DOORS, "trio_mcp.auth.testing", "trio_mcp.testing.strategies", "trio_mcp.otel", "trio_mcp.jsonrpc")


def public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield what users call: functions, constructors and methods; not the fields of models, bundles and snapshots."""
    for door in SURFACES:
        module = importlib.import_module(door)
        for name in getattr(module, "__all__", [each for each in vars(module) if not each.startswith("_")]):
            value = getattr(module, name)
            if inspect.isfunction(value):
                yield f"{door}.{name}", value
            if not inspect.isclass(value) or is_typeddict(value) or value.__module__.partition(".")[0] != "trio_mcp":
                continue
            if not attrs.has(value) and not issubclass(value, BaseModel):
                yield f"{door}.{name}", value.__init__
            for each, method in inspect.getmembers(value, inspect.isfunction):
                if not each.startswith("_") and method.__module__.startswith("trio_mcp."):  # not pydantic's
                    yield f"{door}.{name}.{each}", method


def test_no_public_function_has_more_than_twelve_parameters() -> None:
    """Beyond that they belong into a bundle: one object, or a typed dictionary for ``**``."""
    counted = {
        name: len([each for each in inspect.signature(function).parameters.values() if each.kind in NAMED]) - bound
        for name, function in public_callables()
        for bound in ("self" in inspect.signature(function).parameters,)
    }
    assert len(counted) > 200
    assert {name for name, count in counted.items() if count > MOST_PARAMETERS} == MORE.keys()


@pytest.mark.parametrize(
    ("kind", "bases"),
    [
        (ClientOptions, ()),
        (GroupOptions, (ClientOptions,)),
        (ProxyOptions, ()),
        (ServerOptions, (ProxyOptions,)),
        (HttpSettings, ()),
        (ServeSettings, (HttpSettings,)),
        (SocketSettings, ()),
        (TokenOptions, ()),
        (ResourceOptions, ()),
        (AuthoritySettings, ()),
        (CheckOptions, ()),
        (ServerCheckOptions, (CheckOptions,)),
        (ClientCheckOptions, (CheckOptions,)),
    ],
)
def test_every_setting_has_a_default_and_a_text(kind: Any, bases: tuple[type, ...]) -> None:
    assert settings_of(kind).keys() == kind.__annotations__.keys()
    texts = "\n".join(
        str(inspect.getdoc(each)) for each in (kind, *bases)
    )  # without the indentation, as in Python 3.13
    assert set(re.findall(r"^    (\w+): ", texts, re.MULTILINE)) == kind.__annotations__.keys()


@pytest.mark.parametrize("wrong", ["version", "colour", "descripton"])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("Server.tool", SERVER.tool),
        ("Server.add_tool", lambda **wrong: SERVER.add_tool(print, **wrong)),
        ("Server.resource", lambda **wrong: SERVER.resource("x://y", **wrong)),
        ("Server.add_resource", lambda **wrong: SERVER.add_resource("x://y", print, **wrong)),
        ("Server.prompt", SERVER.prompt),
        ("Server.add_prompt", lambda **wrong: SERVER.add_prompt(print, **wrong)),
    ],
)
def test_what_registers_refuses_an_unknown_detail_at_once(name: str, call: Callable[..., Any], wrong: str) -> None:
    advice = {
        "version": ": the protocol has no versions",
        "colour": "; it takes .*name, title, description",
        "descripton": "; did you mean 'description'",
    }
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument '{wrong}'{advice[wrong]}"):
        call(**{wrong: "red"})


async def test_calls_refuse_an_unknown_keyword_before_anything_is_sent() -> None:
    async with memory_link_pair() as (ours, _):
        client = Client(SERVER)
        calls: dict[str, Callable[..., Any]] = {
            "Client.request": client.request,
            "Client.call_tool": client.call_tool,
            "Client.call_tool_once": client.call_tool_once,
            "Client.read_resource": client.read_resource,
            "Client.read_resource_once": client.read_resource_once,
            "Client.get_prompt": client.get_prompt,
            "Client.get_prompt_once": client.get_prompt_once,
            "BaseSession.send_request": ClientSession(*ours).send_request,
        }
        for name, call in calls.items():
            with pytest.raises(TypeError, match=rf"^{name}\(\) .* 'time_out'; did you mean 'timeout'\?$"):
                await call("x", time_out=5)
    with pytest.raises(TypeError, match=r"'progress_handler': write on_progress=…$"):
        await client.call_tool("x", progress_handler=print)  # type: ignore[call-arg]


def test_every_foreign_keyword_is_of_a_public_function_that_does_not_take_it() -> None:
    for function, keywords in FOREIGN.items():
        ours: Any = reduce(getattr, function.split("."), trio_mcp)
        parameters = inspect.signature(ours).parameters
        assert "VAR_KEYWORD" in {each.kind.name for each in parameters.values()}, function
        assert not keywords.keys() & parameters.keys(), function
