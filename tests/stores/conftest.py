"""An engine for `ValkeyStores`, which the tests of a process share; each has a prefix of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.redis_server import RedisServer, redis_server

NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def engine() -> Iterator[RedisServer]:
    """An engine that stays as it is; one that a test stops or kills must be its own."""
    with redis_server() as server:
        yield server


@pytest.fixture
def prefix() -> str:
    """A prefix that no other test has."""
    return f"test-{next(NUMBERS)}"
