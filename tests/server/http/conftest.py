"""Leaving a stream of httpx early leaves its generators to the garbage collector, which is httpx's own affair."""

from __future__ import annotations

from pathlib import Path

import pytest

IGNORED = [
    r"ignore:Async generator '(httpx|httpcore|tests\.http_peer):ResourceWarning",
    r"ignore:Exception ignored in. <async_generator object (Response\.aiter|Events\._read|.*Stream)",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for text in IGNORED:
                item.add_marker(pytest.mark.filterwarnings(text))
