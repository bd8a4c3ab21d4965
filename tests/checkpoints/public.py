"""The public async functions, to which the rule about checkpoints in docs/design applies.

Public is what docs/reference documents and what the packages for users export, with all members that have no underscore
and the methods behind ``async with``, ``async for`` and a call; and the classes of what such functions hand out. What
the reference leaves out of a class by name is left out here, too, and so are abstract methods, which have no body, and
the hooks that the house calls: what a subclass overrides, and how it opens an ``auth=``. The rest of the house calls
itself: its functions may return without a checkpoint where their callers have had one.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.public_names import ROOT
from trio_mcp.session.client import ClientSession
from trio_mcp.stores.memory_sessions import MemorySessions
from trio_mcp.stores.sqlite_sessions import SqliteSessions
from trio_mcp.stores.valkey_sessions import ValkeySessions

FOR_USERS = tuple(
    f"trio_mcp{name}"
    for name in (
        "",
        ".auth",
        ".extensions",
        ".low_level",
        ".middleware",
        ".otel",
        ".server_card",
        ".stores",
        ".testing",
    )
)
HANDED_OUT = (ClientSession, MemorySessions, SqliteSessions, ValkeySessions)
"""What `Client.session` and `Stores.sessions` return. (ASGI servers alone call what `Server.asgi_app` returns.)"""

SPECIAL = ("__aenter__", "__aexit__", "__anext__", "__call__")
GIVES = re.compile(r"(?:\w+\.)?(Awaitable|Coroutine|InputRequest|AbstractAsyncContextManager|AsyncIterator)\b")
"""What a function that is not async itself returns to be awaited, entered or iterated."""


REFERENCE = "\n".join(page.read_text() for page in sorted((ROOT / "docs" / "reference").glob("*.md")))
HOOKS = {"opened", "received_error", "received_notification", "received_request"}
LEFT_OUT = HOOKS | {name for names in re.findall(r":exclude-members: (.*)", REFERENCE) for name in names.split(", ")}


def _objects() -> Iterator[object]:
    for name in re.findall(r"^\.\. auto\w+:: (\S+)", REFERENCE, re.MULTILINE):
        module, _, attribute = name.rpartition(".")
        yield getattr(importlib.import_module(module or "trio_mcp"), attribute)
    for name in FOR_USERS:
        module = importlib.import_module(name)
        yield from (getattr(module, exported) for exported in module.__all__)
    yield from HANDED_OUT


def is_asynchronous(function: object) -> bool:
    if not inspect.isfunction(function) or getattr(function, "__isabstractmethod__", False):
        return False
    inner = inspect.unwrap(function)
    returned = str(inner.__annotations__.get("return"))
    if returned == "NoReturn":  # it raises, however it ends
        return False
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        return True
    return GIVES.match(returned) is not None


def public_functions() -> dict[Callable[..., Any], str]:
    """Return each of them once, where it is defined, with its qualified name."""
    found: dict[Callable[..., Any], str] = {}
    for each in _objects():
        if is_asynchronous(each):
            found[each] = each.__qualname__  # type: ignore[index, attr-defined]
        if not inspect.isclass(each):
            continue
        for name, member in inspect.getmembers_static(each):
            member = getattr(member, "__func__", member)
            if name in LEFT_OUT or (name.startswith("_") and name not in SPECIAL):
                continue
            if is_asynchronous(member) and member.__module__.partition(".")[0] == "trio_mcp":
                found[member] = member.__qualname__
    return found
