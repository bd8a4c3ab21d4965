"""The calls: each with an id, a result that is known beforehand, and a time limit."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from tests.soak.record import ANSWERED, CANCELLED, FAILED, HUNG, TIMED_OUT, WRONG, Record
from tests.soak.tools import WORDS, colour_of, digest, worked
from trio_mcp import Client, McpError, RemoteProtocolError, RequestTimeout, TransportError, types

TIMEOUT = 30.0  # longer than any pause that the load makes: a call that needs it has been lost
SLACK = 5.0  # for a cancelled call to be gone, on a busy machine
WITH_CLIENT = "given up together with its client"
MAX_WAIT = 30.0  # that a call of a group waits for its server, before its own timeout begins


class WrongAnswer(Exception):
    """A result does not match the arguments."""


class TooEarly(Exception):
    """A response came to a call that could not have one yet."""


class CouldNotAsk(Exception):
    """The tool could not ask its question, or was told that there is no answer."""


@attrs.define
class Call:
    """One call, as its kind needs it.

    ``client`` is None where a group is called, of many servers.
    """

    id: str
    client: Client | None
    call_tool: Callable[..., Awaitable[Any]]
    rng: random.Random
    progress: list[float] = attrs.Factory(list)

    async def tool(self, name: str, timeout: float = TIMEOUT, *, number: int, **more: Any) -> Any:
        told = {"call": self.id, "number": number, **more}
        watching = {"on_progress": lambda progress: self.progress.append(progress.progress)} if name == "steps" else {}
        return await self.call_tool(name, told, timeout=timeout, **watching)


def _client(call: Call) -> Client:
    assert call.client is not None, "a group calls tools alone"
    return call.client


def expect(got: object, wanted: object) -> None:
    if got != wanted:
        raise WrongAnswer(f"{str(got)[:200]!r} instead of {str(wanted)[:200]!r}")


async def work(call: Call) -> None:
    number, pad = call.rng.randrange(10**9), call.rng.choice((0, 0, 0, 200, 5000))
    expect((await call.tool("work", number=number, pad=pad)).data, worked(call.id, number, pad))


async def big(call: Call) -> None:
    number, pad = call.rng.randrange(10**9), call.rng.choice((70_000, 200_000, 700_000))
    expect((await call.tool("work", number=number, pad=pad)).data, worked(call.id, number, pad))


async def structured(call: Call) -> None:
    number = call.rng.randrange(10**9)
    answer = await call.tool("structured", number=number)
    expect(answer.structured_content, {"call": call.id, "told": digest(call.id, number)})


async def steps(call: Call) -> None:
    number = call.rng.choice((3, 10, 25))
    close = call.rng.random() < 0.15
    answer = await call.tool("steps", number=number, pause=call.rng.choice((0, 0.005, 0.05)), close=close)
    expect(answer.data, digest(call.id, number))
    expect(call.progress, list(range(1, number + 1)))


async def in_thread(call: Call) -> None:
    number = call.rng.randrange(10**9)
    expect((await call.tool("in_thread", number=number)).data, digest(call.id, number))


async def fail(call: Call) -> None:
    number = call.rng.randrange(10**9)
    answer = await call.tool("fail", number=number)
    expect((answer.is_error, answer.text), (True, digest(call.id, number)))


async def log(call: Call) -> None:
    number = call.rng.randrange(10**9)
    expect((await call.tool("log", number=number)).data, digest(call.id, number))


async def ask(call: Call) -> None:
    number = call.rng.randrange(10**9)
    answer = await call.tool("ask", 10, number=number)
    if answer.is_error:
        raise CouldNotAsk(answer.text)
    expect(answer.data, f"{digest(call.id, number)} {colour_of(call.id)}")


async def announce(call: Call) -> None:
    number = call.rng.randrange(20)
    expect((await call.tool("announce", number=number)).data, digest(call.id, number))


async def slow_cancelled(call: Call) -> None:
    """Give up; the scope is the caller's (see `perform`)."""
    with trio.move_on_after(call.rng.choice((0, 0.001, 0.01, 0.1, 0.5))) as scope:
        await call.tool("slow", number=1, seconds=60)
    if not scope.cancelled_caught:
        raise TooEarly("an answer to a call of 60 seconds")


async def slow_timed_out(call: Call) -> None:
    await call.tool("slow", call.rng.choice((0.001, 0.05, 0.3)), number=1, seconds=60)
    raise TooEarly("an answer to a call of 60 seconds")


async def slow_finished(call: Call) -> None:
    expect((await call.tool("slow", number=1, seconds=call.rng.uniform(0.1, 1.5))).data, digest(call.id, 1))


async def lists(call: Call) -> None:
    names = {tool.name for tool in (await _client(call).list_tools(timeout=TIMEOUT)).tools}
    expect(names >= {"work", "steps", "ask"}, True)


async def read(call: Call) -> None:
    number = call.rng.randrange(20)
    (contents,) = (await _client(call).read_resource(f"soak://text/{number}", timeout=TIMEOUT)).contents
    expect(getattr(contents, "text", None), digest("text", number))


async def prompt(call: Call) -> None:
    (message,) = (await _client(call).get_prompt("review", {"what": call.id}, timeout=TIMEOUT)).messages
    expect(getattr(message.content, "text", None), f"review {call.id}")


async def complete(call: Call) -> None:
    typed = call.rng.choice("abcd")
    found = await _client(call).complete(types.PromptReference(name="review"), "what", typed, timeout=TIMEOUT)
    expect(found.completion.values, [word for word in WORDS if word.startswith(typed)])


async def listen(call: Call) -> None:
    """Hear of changes for a while."""
    uri = f"soak://text/{call.rng.randrange(20)}"
    async with _client(call).listen(tools_list_changed=True, resources=[uri], timeout=TIMEOUT) as events:
        with trio.move_on_after(call.rng.uniform(0.1, 3)):
            async for _ in events:
                pass


Kind = Callable[[Call], Awaitable[None]]

# How often each is drawn; those of the second table are the tools, which have a line in the ledger.
READING: dict[Kind, int] = {lists: 3, read: 5, prompt: 3, complete: 2, listen: 2}
TOOLS: dict[Kind, int] = {
    work: 34,
    big: 3,
    structured: 5,
    steps: 16,
    in_thread: 4,
    fail: 3,
    log: 3,
    ask: 5,
    announce: 2,
    slow_cancelled: 10,
    slow_timed_out: 5,
    slow_finished: 3,
}
NAMES = {kind: getattr(kind, "__name__", "") for kind in (*TOOLS, *READING)}
WITH_EFFECT = frozenset(NAMES[kind] for kind in TOOLS)


async def perform(kind: Kind, call: Call, lane: str, record: Record, *, tears: bool, breaks: bool = False) -> bool:
    """Make one call and record its outcome.

    Args:
        kind: What to do.
        call: The call.
        lane: The lane, for the record.
        record: Where it is written down.
        tears: Whether the connection may break, so that an error is a valid outcome.
        breaks: Whether the client's own end may lose a call.

    Returns:
        Whether the client may be lost.
    """
    name, started = NAMES[kind], trio.current_time()
    slack = SLACK + (MAX_WAIT if call.client is None else 0)
    outcome, note, gone = ANSWERED, "", False
    with trio.move_on_after(TIMEOUT + slack) as scope:
        try:
            await kind(call)
            if kind is slow_cancelled:
                outcome = CANCELLED
        except trio.Cancelled:
            if not scope.cancel_called:  # the client's whole block is given up
                record.ended(lane, name, call.id, CANCELLED, trio.current_time() - started, WITH_CLIENT)
            raise
        except (WrongAnswer, TooEarly) as exc:
            outcome, note = WRONG, str(exc)
        except RequestTimeout as exc:
            # The user's answer is a POST of its own in the legacy era: torn twice, and the tool waits forever.
            fair = FAILED if breaks or (kind is ask and tears) else HUNG
            outcome, note = (TIMED_OUT, "") if kind is slow_timed_out else (fair, str(exc))
        except (TransportError, McpError, RemoteProtocolError, CouldNotAsk) as exc:  # a message may be torn, too
            # A call through a group may have had its time while its server was still being connected.
            early = kind is slow_timed_out and call.client is None and "is not connected yet" in str(exc)
            gone = isinstance(exc, TransportError) and not early
            outcome, note = FAILED if tears or early else WRONG, f"{type(exc).__name__}: {exc}"
        except Exception as exc:
            outcome, note = WRONG, f"{type(exc).__name__}: {exc}"
    if scope.cancelled_caught:
        outcome, note = HUNG, f"no end within {TIMEOUT + slack} seconds"
    seconds = trio.current_time() - started
    if outcome in (CANCELLED, TIMED_OUT):
        record.late = max(record.late, seconds - 0.5)
        if seconds > 0.5 + slack:
            outcome, note = HUNG, f"took {seconds:.1f} s to be given up"
    if call.progress != list(range(1, len(call.progress) + 1)):
        outcome, note = WRONG, f"progress was {call.progress}"
    record.ended(lane, name, call.id, outcome, seconds, note)
    return gone
