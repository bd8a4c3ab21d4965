"""What a server does not offer is not imported, and no client can tell the difference."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.server.harness import LEGACY, MODERN, server_with
from tests.server.input_harness import hand_client
from trio_mcp import Server
from trio_mcp.jsonrpc.messages import ErrorData
from trio_mcp.server.features.deferred import Deferred
from trio_mcp.types.error_codes import METHOD_NOT_FOUND


@pytest.mark.parametrize(
    ("method", "revision", "missing"),
    [
        ("prompts/list", MODERN, "prompts"),
        ("prompts/get", MODERN, "prompts"),
        ("completion/complete", MODERN, "completions"),
        ("resources/list", MODERN, "resources"),
        ("resources/templates/list", MODERN, "resources"),
        ("resources/read", MODERN, "resources"),
        ("resources/subscribe", LEGACY, "resources"),
        ("resources/unsubscribe", LEGACY, "resources"),
    ],
)
async def test_the_feature_answers_its_methods_and_middleware_sees_them(
    method: str, revision: str, missing: str
) -> None:
    """A method that the server did not know of would be answered in other words, and past the middleware."""
    seen = []

    async def watch(context: Any, call_next: Any) -> Any:
        seen.append(context.method)
        return await call_next()

    async with hand_client(server_with(middleware=[watch]), revision) as client:
        for _ in range(2):  # the first request makes the feature
            error = await client.ask(method, {})
            assert error == ErrorData(
                METHOD_NOT_FOUND, f"unknown method {method!r}: this server has no {missing}", error.data
            )
    assert [each for each in seen if each == method] == [method] * 2


async def test_what_is_first_offered_while_a_server_runs_is_served() -> None:
    server = Server("test")
    async with hand_client(server, MODERN) as client:
        assert (await client.ask("resources/list")).code == METHOD_NOT_FOUND
        server.add_resource("x://it", lambda: "text", name="it")
        server.add_prompt(lambda: "text", name="it")
        assert [each["uri"] for each in (await client.result("resources/list"))["resources"]] == ["x://it"]
        assert [each["name"] for each in (await client.result("prompts/list"))["prompts"]] == ["it"]
    assert (server.statistics().resources, server.statistics().prompts) == (1, 1)


def test_two_threads_that_need_a_part_at_once_get_the_same_one() -> None:
    """Otherwise what one of them registers would be lost."""
    both_make, adopted = threading.Barrier(2, timeout=30), []

    def make() -> object:
        both_make.wait()
        return object()

    part = Deferred(make, adopted.append)
    with ThreadPoolExecutor(2) as threads:
        one, other = [each.result() for each in [threads.submit(part.get) for _ in range(2)]]
    assert one is other is part.made is part.get()
    assert adopted == [one]
