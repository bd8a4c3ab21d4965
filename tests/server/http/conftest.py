"""Each test runs on all the runners; see `runners`.

Leaving a stream of httpx early leaves its generators to the garbage collector, which is httpx's own affair.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.http.runners import chosen, runners_of

IGNORED = [
    r"ignore:Async generator '(httpx|httpcore|tests\.http_peer):ResourceWarning",
    r"ignore:Exception ignored in. <async_generator object (Response\.aiter|Events\._read|.*Stream)",
]


@pytest.fixture(autouse=True)
def runner(request: pytest.FixtureRequest) -> Iterator[str]:
    """The runner of a test."""
    given = getattr(request, "param", None)
    chosen.set(given or "hypercorn")
    yield given or ""
    assert chosen.used == (given is not None), "the tables in runners.py say which tests start no server"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    runners = runners_of(metafunc.module.__name__.rpartition(".")[2], metafunc.function.__name__)
    # httptools apart: all but the parser of header fields is what h11 has.
    parameters = [pytest.param(name, marks=pytest.mark.again) if name == "httptools" else name for name in runners]
    if parameters:
        metafunc.parametrize("runner", parameters, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _is_http2_elsewhere(item)]
    folder = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(folder):
            for text in IGNORED:
                item.add_marker(pytest.mark.filterwarnings(text))


def _is_http2_elsewhere(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    given = {} if callspec is None else callspec.params
    return given.get("protocol") == "h2" and given.get("runner") != "hypercorn"
