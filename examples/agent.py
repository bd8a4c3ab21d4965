"""The loop of an agent over a group of servers. The model is a stand-in that follows a script: put yours there.

$ python examples/agent.py
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import trio

from trio_mcp import ClientGroup, McpError, Server, ToolError, TransportError
from trio_mcp.types import Tool

weather, mail = Server("weather", version="1.0.0"), Server("mail", version="1.0.0")


@weather.tool
async def forecast(city: str) -> str:
    """Forecast the weather of tomorrow."""
    if city == "Atlantis":
        raise ToolError("no such city: Atlantis")
    return "snow" if city == "Oslo" else "sun"


@mail.tool
async def send(to: str, text: str) -> str:
    """Send a mail."""
    return f"sent to {to}: {text}"


@dataclass
class Turn:
    """What the model says: a text for the user, or calls of tools."""

    text: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


SCRIPT: Iterator[Turn] = iter(
    [
        Turn(
            calls=[
                ("weather__forecast", {"city": "Oslo"}),
                ("weather__forecast", {"city": "Atlantis"}),
                ("weather__forcast", {"city": "Rome"}),  # models do misspell
            ]
        ),
        Turn(calls=[("mail__send", {"to": "ada@example.com", "text": "Take your skis to Oslo."})]),
        Turn(text="I told Ada to take her skis."),
    ]
)


async def ask_model(conversation: list[str], tools: list[Tool]) -> Turn:
    """Ask the model for its next turn; a real one gets the conversation and the tools' schemas."""
    await trio.lowlevel.checkpoint()
    return next(SCRIPT)


async def call(group: ClientGroup, name: str, arguments: dict[str, Any], results: list[str], number: int) -> None:
    """Call a tool. Whatever goes wrong is for the model to read, so that it may try something else."""
    said = "failed: no result within 30 seconds"
    with trio.move_on_after(30):
        try:
            result = await group.call_tool(name, arguments)
            said = f"failed: {result.text}" if result.is_error else result.text
        except (McpError, TransportError) as exc:  # refused, or its server is lost
            said = f"failed: {exc}"
    results[number] = f"{name}({json.dumps(arguments)}): {said}"


async def answer(question: str, group: ClientGroup) -> str:
    """Answer a question with as many turns as the model needs, up to a limit."""
    conversation = [f"user: {question}"]
    for _ in range(10):
        turn = await ask_model(conversation, list(await group.list_tools(audience="model")))
        if not turn.calls:
            return turn.text
        results = [""] * len(turn.calls)
        async with trio.open_nursery() as nursery:  # all calls of a turn at once
            for number, (name, arguments) in enumerate(turn.calls):
                nursery.start_soon(call, group, name, arguments, results, number)
        print(*results, sep="\n")
        conversation += results
    return "I give up."


async def main() -> None:
    async with ClientGroup({"weather": weather, "mail": mail}) as group:
        print(await answer("Should Ada take her skis to Oslo?", group))


if __name__ == "__main__":
    trio.run(main)
