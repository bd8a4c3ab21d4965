"""Makes fixtures for tests with pytest-trio."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any, Unpack, cast

import pytest_trio  # type: ignore[import-untyped]

from trio_mcp._keywords import refuse_unknown
from trio_mcp.client.client import Client
from trio_mcp.client.options import ClientOptions
from trio_mcp.client.targets import Target

__all__ = ["client_fixture"]


def client_fixture(
    target: Target | None = None, *, fixture: str | None = None, **options: Unpack[ClientOptions]
) -> Any:
    """Return a pytest-trio fixture that is a connected `Client` during a test: ``client = client_fixture(server)``.

    Each test gets its own client and its own run of the server.

    Args:
        target: The target of the client: a `Server`, or anything else that a `Client` takes.
        fixture: The name of a fixture that returns the target, in place of ``target``.
        options: Any other arguments of `Client`.

    Raises:
        TypeError: If neither or both of ``target`` and ``fixture`` are given, or an option is unknown.
    """
    if (target is None) == (fixture is None):
        raise TypeError("client_fixture() takes exactly one of target and fixture")
    refuse_unknown(client_fixture, options, ClientOptions)

    async def client(**needed: Any) -> AsyncIterator[Client]:
        (found,) = needed.values() or [cast(Target, target)]
        async with Client(found, **options) as connected:
            yield connected  # noqa: ASYNC119 - pytest-trio closes it

    # pytest finds the fixtures that a function needs by the names of its parameters.
    needed = [] if fixture is None else [inspect.Parameter(fixture, inspect.Parameter.KEYWORD_ONLY)]
    client.__signature__ = inspect.Signature(needed)  # type: ignore[attr-defined]
    return pytest_trio.trio_fixture(client)
