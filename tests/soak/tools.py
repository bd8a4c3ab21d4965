"""The server under load: its tools record in the ledger what they did."""

from __future__ import annotations

import hashlib
from typing import Literal

import trio
from pydantic import BaseModel

from tests.soak.record import Ledger
from trio_mcp import Context, Server, ToolError

# The results are functions of the arguments alone, which the caller computes as well.
COLOURS = ("red", "green", "blue", "white")
WORDS = tuple(f"{letter}{number}" for letter in "abc" for number in range(5))


def digest(call: str, number: int) -> str:
    """Return the result of a call with this id and this argument."""
    return hashlib.sha256(f"{call}:{number}".encode()).hexdigest()


def worked(call: str, number: int, pad: int) -> str:
    """Return the result of the tool ``work``, with this many characters more."""
    told = digest(call, number)
    return told + (told * (pad // len(told) + 1))[:pad]


def colour_of(call: str) -> str:
    """Return the user's answer to the question of this call."""
    return COLOURS[int(digest(call, 0)[:4], 16) % len(COLOURS)]


class Colour(BaseModel):
    """The form that the user is asked to fill in."""

    colour: Literal["red", "green", "blue", "white"]


class Answer(BaseModel):
    """Structured content."""

    call: str
    told: str


def make_server(ledger: Ledger, name: str) -> Server:
    """Make the server; every effect is recorded in the ledger once it is done."""
    server = Server(name, version="1")

    @server.tool
    async def work(call: str, number: int, pad: int = 0) -> str:
        """Answer at once."""
        ledger.note(call, "did")
        return worked(call, number, pad)

    @server.tool
    async def structured(call: str, number: int) -> Answer:
        """Answer with structured content."""
        ledger.note(call, "did")
        return Answer(call=call, told=digest(call, number))

    @server.tool
    async def steps(call: str, number: int, pause: float, ctx: Context, close: bool = False) -> str:
        """Report each step; sometimes end the stream midway, so that the client has to reconnect."""
        ledger.note(call, "did")
        for step in range(1, number + 1):
            await ctx.report_progress(step, number, f"step {step}")
            if close and step == number // 2:
                ctx.close_stream(0.05)
            await trio.sleep(pause)
        return digest(call, number)

    _add_more(server, ledger)
    _add_texts(server)
    return server


def _add_more(server: Server, ledger: Ledger) -> None:
    """Add the tools that do more than answer: they wait, fail, log, ask."""

    @server.tool
    async def slow(call: str, number: int, seconds: float) -> str:
        """Take a long time, for callers that give up."""
        ledger.note(call, "did")
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            ledger.note(call, "cancelled")
            raise
        ledger.note(call, "finished")
        return digest(call, number)

    @server.tool
    def in_thread(call: str, number: int) -> str:
        """Answer from a thread."""
        ledger.note(call, "did")
        return digest(call, number)

    @server.tool
    async def fail(call: str, number: int) -> str:
        """Fail."""
        ledger.note(call, "did")
        raise ToolError(digest(call, number))

    @server.tool
    async def log(call: str, number: int, ctx: Context) -> str:
        """Log something."""
        ledger.note(call, "did")
        await ctx.log("info", {"call": call}, logger="soak")
        return digest(call, number)

    @server.tool
    async def ask(call: str, number: int, ctx: Context) -> str:
        """Ask the user; in the modern era the tool reruns with the response, so the effect comes after that."""
        answer = await ctx.elicit(f"Which colour for {call}?", Colour)
        ledger.note(call, "did")
        return f"{digest(call, number)} {answer.data.colour if answer.data else answer.action}"

    @server.tool
    async def announce(call: str, number: int) -> str:
        """Notify the listeners that something has changed."""
        ledger.note(call, "did")
        server.notify_tools_changed()
        server.notify_resource_updated(f"soak://text/{number}")
        return digest(call, number)


def _add_texts(server: Server) -> None:
    """Add the prompts and resources, which have no effects."""

    @server.resource("soak://text/{number}")
    async def text(number: str) -> str:
        return digest("text", int(number))

    @server.prompt
    async def review(what: str) -> str:
        """Review something."""
        return f"review {what}"

    @server.completion(prompt="review", argument="what")
    async def what(typed: str) -> list[str]:
        return [word for word in WORDS if word.startswith(typed)]
