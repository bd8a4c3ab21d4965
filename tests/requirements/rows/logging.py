"""``server/utilities/logging``: the duties of a server that logs to its clients."""

from __future__ import annotations

from typing import Any, get_args

from tests.peer import Peer
from tests.requirements.case import Case
from tests.requirements.model import LEGACY, MODERN, Topic
from trio_mcp import Context, Server
from trio_mcp.jsonrpc.messages import Response
from trio_mcp.types import LoggingLevel, error_codes, meta

LEVELS: tuple[Any, ...] = get_args(LoggingLevel)


def server() -> Server:
    made = Server("logging")

    @made.tool
    async def speak(ctx: Context) -> str:
        """Log at every level."""
        for level in LEVELS:
            await ctx.log(level, {"level": level, "n": [1, None]}, "speaker")
        return "said"

    @made.tool
    async def mumble(ctx: Context) -> str:
        """Log a text without a logger's name."""
        await ctx.log("error", "a text")
        return "said"

    return made


topic = Topic("Logging", server)

MESSAGES = "notifications/message"
SECTION = "server/utilities/logging"


async def heard(hand: Peer, tool: str = "speak", **more: Any) -> list[dict[str, Any]]:
    """What is logged until the call is answered, and a little longer."""
    await hand.call(tool, **more)
    await hand.result("tools/list")
    found = hand.heard_of(MESSAGES)
    hand.heard.clear()
    return found


async def asking(case: Case, hand: Peer, level: str) -> dict[str, Any]:
    """Ask for a level, of the session or by what is returned."""
    if case.modern:
        return {meta.LOG_LEVEL: level}
    assert await hand.result("logging/setLevel", {"level": level}) == {}
    return {}


@topic.row(f"{SECTION}#capabilities", "A server that may log declares the capability.")
async def capability(case: Case) -> None:
    async with case.client() as client:
        assert client.capabilities.logging is not None


@topic.row(
    f"{SECTION}#log-levels", "Who asks for one of the eight levels of syslog gets what is logged at it and above, only."
)
async def by_level(case: Case) -> None:
    levels = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
    async with case.hand() as hand:
        for number, level in enumerate(levels):
            assert [each["level"] for each in await heard(hand, **await asking(case, hand, level))] == levels[number:]


@topic.row(f"{SECTION}#per-request-log-level", "A request that does not ask for log messages gets none.", MODERN)
async def not_asked(hand: Peer) -> None:
    assert await heard(hand) == []


@topic.row(f"{SECTION}#per-request-log-level", "The level of one request does not count for the next.", MODERN)
async def level_per_request(hand: Peer) -> None:
    assert len(await heard(hand, **{meta.LOG_LEVEL: "debug"})) == len(LEVELS)
    assert await heard(hand) == []


@topic.row(f"{SECTION}#per-request-log-level", "Two concurrent requests each get messages by their own level.", MODERN)
async def levels_of_two_requests(hand: Peer) -> None:
    first = await hand.request("tools/call", {"name": "speak"}, **{meta.LOG_LEVEL: "emergency"})
    second = await hand.request("tools/call", {"name": "speak"})
    for each in (first, second):
        assert isinstance(await hand.answer(each), Response)
    await hand.result("tools/list")
    assert [each["level"] for each in hand.heard_of(MESSAGES)] == ["emergency"]


@topic.row(f"{SECTION}#setting-log-level", "The level of a session stays until it is set again.", LEGACY)
async def level_of_the_session(hand: Peer) -> None:
    for level, count in (("emergency", 1), ("alert", 2)):
        await hand.result("logging/setLevel", {"level": level})
        for _ in range(2):
            assert len(await heard(hand)) == count


@topic.row(f"{SECTION}#error-handling", "A level that does not exist is refused with -32602.")
async def unknown_level(case: Case) -> None:
    async with case.hand() as hand:
        for level in ("verbose", "INFO", "", 7, None):
            if not case.modern:
                error = await hand.error("logging/setLevel", {"level": level})
            elif level is not None:
                error = await hand.error("tools/call", {"name": "speak"}, **{meta.LOG_LEVEL: level})
            assert error.code == error_codes.INVALID_PARAMS


topic.refuses(
    f"{SECTION}#error-handling",
    "logging/setLevel without a level is refused with -32602.",
    "logging/setLevel",
    {},
    revisions=LEGACY,
)


@topic.row(f"{SECTION}#error-handling", "A refused level leaves the session's level unchanged.", LEGACY)
async def refused_level(hand: Peer) -> None:
    await hand.result("logging/setLevel", {"level": "emergency"})
    await hand.error("logging/setLevel", {"level": "verbose"})
    assert len(await heard(hand)) == 1


@topic.row(
    f"{SECTION}#log-message-notifications",
    "Log messages come in order and before the answer, with level and data of any JSON kind, and may name a logger.",
)
async def messages(case: Case) -> None:
    async with case.hand() as hand:
        more = await asking(case, hand, "debug")
        await hand.call("speak", **more)
        found = hand.heard_of(MESSAGES)
        assert [(each["level"], each["logger"]) for each in found] == [(level, "speaker") for level in LEVELS]
        assert all(each["data"] == {"level": each["level"], "n": [1, None]} for each in found)
        hand.heard.clear()
        assert await heard(hand, "mumble", **more) == [{"level": "error", "data": "a text"}]


topic.held(
    """
    Log messages that do not fit the buffer are dropped: logging never waits and never piles up.
        server/utilities/logging#implementation-considerations logging_never_waits_and_drops_what_does_not_fit
    """,
    tests="tests/server/test_logging.py::test_",
)
