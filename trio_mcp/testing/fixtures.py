"""Makes fixtures for tests with pytest-trio."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Unpack, cast

import pytest_trio  # type: ignore[import-untyped]

from trio_mcp._keywords import refuse_unknown
from trio_mcp.client.client import Client
from trio_mcp.client.options import ClientOptions
from trio_mcp.client.surface.drift import DriftReport, compare_snapshots
from trio_mcp.client.surface.snapshot import Snapshot
from trio_mcp.client.targets import Target

__all__ = ["client_fixture", "drift_fixture"]


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
    _check(client_fixture, target, fixture, options)

    async def client(**needed: Any) -> AsyncIterator[Client]:
        (found,) = needed.values() or [cast(Target, target)]
        async with Client(found, **options) as connected:
            yield connected  # noqa: ASYNC119 - pytest-trio closes it

    return _fixture(client, fixture)


def drift_fixture(
    path: str | Path, target: Target | None = None, *, fixture: str | None = None, **options: Unpack[ClientOptions]
) -> Any:
    """Return a pytest-trio fixture that is the `DriftReport` of a server: what has changed since a snapshot.

    ``drift = drift_fixture("surface.json", server)`` makes the fixture, and a test is ``assert not drift.breaking``.
    ``trio-mcp snapshot`` writes the file.

    Args:
        path: The file of the snapshot.
        target: The target of a client: a `Server`, or anything else that a `Client` takes.
        fixture: The name of a fixture that returns the target, in place of ``target``.
        options: Any other arguments of `Client`. What a server offers may depend on ``answers``.

    Raises:
        TypeError: If neither or both of ``target`` and ``fixture`` are given, or an option is unknown.
    """
    _check(drift_fixture, target, fixture, options)

    async def drift(**needed: Any) -> DriftReport:
        (found,) = needed.values() or [cast(Target, target)]
        before = Snapshot.read(path)
        # The revision is that of the snapshot, unless the options name one: another one may offer other things.
        settings: Any = {"mode": before.revision, **options}
        async with Client(found, **settings) as client:
            return compare_snapshots(before, await Snapshot.of(client))

    return _fixture(drift, fixture)


def _check(made_by: Any, target: object, fixture: str | None, options: ClientOptions) -> None:
    if (target is None) == (fixture is None):
        raise TypeError(f"{made_by.__name__}() takes exactly one of target and fixture")
    refuse_unknown(made_by, options, ClientOptions)


def _fixture(function: Any, fixture: str | None) -> Any:
    """Return a function as a fixture, which needs another one if that is named."""
    # pytest finds the fixtures that a function needs by the names of its parameters.
    needed = [] if fixture is None else [inspect.Parameter(fixture, inspect.Parameter.KEYWORD_ONLY)]
    function.__signature__ = inspect.Signature(needed)
    return pytest_trio.trio_fixture(function)
