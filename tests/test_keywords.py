"""Unknown keyword arguments are refused, by the name of what was called, and the error says what to write."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

import trio_mcp
from trio_mcp import Client, ClientSession, Server, memory_link_pair
from trio_mcp._keywords import FOREIGN

SERVER = Server("test")


@pytest.mark.parametrize("wrong", ["tags", "colour", "descripton"])
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
        "tags": ": write meta=",
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
