"""A host on a terminal: many servers, calls that run side by side, forms, sampling, and restarts.

$ python examples/host.py mcp.json

> tools                               what can be called
> files__read_text_file {"path": …}   a call; others may be typed while it runs
> stop 1                              cancels the first call
> servers                             who is connected; a server that dies is started again
"""

import json
import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import trio

from trio_mcp import Answers, ClientGroup, TrioMcpError, statistics, types


class Host:
    """The servers of a file with `mcpServers`, and a user who types lines and is shown others."""

    def __init__(self, config: Path, show: Callable[[str], object] = print) -> None:
        self.show = show
        self.calls: dict[int, trio.CancelScope] = {}
        self.numbers = count(1)
        self.asking = trio.Lock()  # one form at a time
        self.form: trio.MemorySendChannel[str] | None = None  # who gets the next line, if a form is open
        answers = Answers(elicitation=self.fill, elicitation_modes=["form"], sampling=self.reply, roots=[config.parent])
        self.group = ClientGroup.from_config(config, require="any", on_status=self.changed, answers=answers)

    def changed(self, server: str, status: statistics.ServerStatus) -> None:
        self.show(f"{server} is {status.state}" + (f": {status.cause}" if status.cause else ""))

    async def fill(self, form: types.ElicitRequestFormParams) -> Any:
        """Show a form; the next line that the user types is the answer: JSON, or nothing to decline."""
        async with self.asking:
            self.form, line = trio.open_memory_channel[str](1)
            try:
                self.show(f"? {form.message} {list(form.requested_schema.properties)}")
                return json.loads(await line.receive() or "null")
            finally:
                self.form = None

    async def reply(self, question: types.CreateMessageRequestParams) -> str:
        asked = [block.text for block in question.messages[-1].content_as_list if isinstance(block, types.TextContent)]
        self.show(f"the model is asked: {' '.join(asked)}")
        return f"I have read {len(question.messages)} message"  # put your model here

    async def call(self, number: int, tool: str, arguments: dict[str, Any]) -> None:
        def told(what: object) -> None:
            self.show(f"{number}: {what}")

        told(f"calling {tool}")
        with trio.CancelScope() as self.calls[number]:
            try:
                result = await self.group.call_tool(tool, arguments, on_progress=lambda now: told(now.progress))
                told(f"{'failed: ' if result.is_error else ''}{result.text}")
            except (TrioMcpError, TypeError) as exc:  # TypeError: the arguments are no object
                told(exc)
        if self.calls.pop(number).cancelled_caught:
            told("stopped")

    async def obey(self, line: str, nursery: trio.Nursery) -> None:
        command, _, rest = line.partition(" ")
        if command == "tools":
            for tool in await self.group.list_tools(audience="model"):
                self.show(f"{tool.name}: {(tool.description or '').partition(chr(10))[0]}")
        elif command == "servers":
            for name, status in self.group.status.items():
                self.changed(name, status)
        elif command == "stop" and rest.isdecimal() and int(rest) in self.calls:
            self.calls[int(rest)].cancel("the user has stopped it")
        else:
            try:
                nursery.start_soon(self.call, next(self.numbers), command, json.loads(rest or "{}"))
            except (ValueError, RecursionError) as exc:
                self.show(f"the arguments are not JSON: {exc}")

    async def run(self, lines: AsyncIterable[str]) -> None:
        """Serve the user until there are no more lines."""
        async with self.group, trio.open_nursery() as nursery:
            async for line in lines:
                if self.form is not None:
                    await self.form.send(line)
                elif line:
                    await self.obey(line, nursery)
            nursery.cancel_scope.cancel("the user has left")


async def typed() -> AsyncIterator[str]:
    while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        yield line.strip()


if __name__ == "__main__":
    trio.run(Host(Path(sys.argv[1])).run, typed())
