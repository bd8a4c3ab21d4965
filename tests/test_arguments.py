"""The same fault raises the same exception everywhere: `TypeError` for a wrong type, `ValueError` for a wrong value."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from trio_mcp import (
    Answers,
    Backoff,
    CacheHint,
    CallOptions,
    Client,
    ClientGroup,
    FunctionOptions,
    HandlerOptions,
    HttpOptions,
    HttpServerParameters,
    InputOptions,
    ListOptions,
    MemoryEventStore,
    Principal,
    ResponseCache,
    Server,
    SessionOptions,
    StdioServerParameters,
)

CLASSES: tuple[Any, ...] = (
    Backoff,
    CacheHint,
    CallOptions,
    FunctionOptions,
    HandlerOptions,
    HttpOptions,
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
