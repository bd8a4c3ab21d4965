"""``server/utilities/logging``: what a server that logs to its clients has to do."""

from __future__ import annotations

from typing import Any, get_args

from tests.peer import Peer
from tests.requirements.case import Case
from tests.requirements.model import ALL, LEGACY, MODERN, Topic
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


async def levels_at(case: Case, level: str) -> list[str]:
    async with case.hand() as hand:
        if not case.modern:
            assert await hand.result("logging/setLevel", {"level": level}) == {}
            return [each["level"] for each in await heard(hand)]
        return [each["level"] for each in await heard(hand, **{meta.LOG_LEVEL: level})]


@topic.row(f"{SECTION}#capabilities", "A server that may log declares the capability.")
async def capability(case: Case) -> None:
    async with case.client() as client:
        assert client.capabilities.logging is not None


def _level(level: str) -> None:
    async def scenario(case: Case) -> None:
        assert await levels_at(case, level) == list(LEVELS[LEVELS.index(level) :])

    scenario.__name__ = f"at_{level}"
    topic.row(f"{SECTION}#log-levels", f"Who asks for {level} gets what is logged at that level and above, only.")(
        scenario
    )


for _each in ("debug", "warning", "emergency"):
    _level(_each)


@topic.row(f"{SECTION}#log-levels", "Each of the eight levels of syslog may be asked for.", ALL)
async def all_levels(case: Case) -> None:
    async with case.hand() as hand:
        for level in ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"):
            if case.modern:
                await hand.call("mumble", **{meta.LOG_LEVEL: level})
            else:
                assert await hand.result("logging/setLevel", {"level": level}) == {}


@topic.row(f"{SECTION}#per-request-log-level", "A request that does not ask for log messages gets none.", MODERN)
async def not_asked(case: Case) -> None:
    async with case.hand() as hand:
        assert await heard(hand) == []


@topic.row(f"{SECTION}#per-request-log-level", "The level of one request does not count for the next.", MODERN)
async def level_per_request(case: Case) -> None:
    async with case.hand() as hand:
        assert len(await heard(hand, **{meta.LOG_LEVEL: "debug"})) == len(LEVELS)
        assert await heard(hand) == []


@topic.row(f"{SECTION}#per-request-log-level", "Two concurrent requests each get messages by their own level.", MODERN)
async def levels_of_two_requests(case: Case) -> None:
    async with case.hand() as hand:
        first = await hand.request("tools/call", {"name": "speak"}, **{meta.LOG_LEVEL: "emergency"})
        second = await hand.request("tools/call", {"name": "speak"})
        for each in (first, second):
            assert isinstance(await hand.answer(each), Response)
        await hand.result("tools/list")
        assert [each["level"] for each in hand.heard_of(MESSAGES)] == ["emergency"]


@topic.row(f"{SECTION}#setting-log-level", "The level of a session stays until it is set again.", LEGACY)
async def level_of_the_session(case: Case) -> None:
    async with case.hand() as hand:
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


@topic.row(f"{SECTION}#error-handling", "logging/setLevel without a level is refused with -32602.", LEGACY)
async def level_missing(case: Case) -> None:
    async with case.hand() as hand:
        assert (await hand.error("logging/setLevel", {})).code == error_codes.INVALID_PARAMS


@topic.row(f"{SECTION}#error-handling", "A refused level leaves the session's level unchanged.", LEGACY)
async def refused_level(case: Case) -> None:
    async with case.hand() as hand:
        await hand.result("logging/setLevel", {"level": "emergency"})
        await hand.error("logging/setLevel", {"level": "verbose"})
        assert len(await heard(hand)) == 1


async def asked(case: Case, tool: str) -> list[dict[str, Any]]:
    async with case.hand() as hand:
        if case.modern:
            return await heard(hand, tool, **{meta.LOG_LEVEL: "debug"})
        await hand.result("logging/setLevel", {"level": "debug"})
        return await heard(hand, tool)


@topic.row(f"{SECTION}#log-message-notifications", "A log message has its level, and data of any JSON kind.")
async def data(case: Case) -> None:
    for each in await asked(case, "speak"):
        assert each["data"] == {"level": each["level"], "n": [1, None]}


@topic.row(f"{SECTION}#log-message-notifications", "The data of a log message may be a text.")
async def text(case: Case) -> None:
    (found,) = await asked(case, "mumble")
    assert found["data"] == "a text"


@topic.row(f"{SECTION}#log-message-notifications", "A log message may name its logger, or leave that out.")
async def logger(case: Case) -> None:
    assert {each["logger"] for each in await asked(case, "speak")} == {"speaker"}
    (found,) = await asked(case, "mumble")
    assert "logger" not in found


@topic.row(f"{SECTION}#log-message-notifications", "Log messages of a request come in order, and before its answer.")
async def in_order(case: Case) -> None:
    async with case.hand() as hand:
        more = {meta.LOG_LEVEL: "debug"} if case.modern else {}
        if not case.modern:
            await hand.result("logging/setLevel", {"level": "debug"})
        await hand.call("speak", **more)
        assert tuple(each["level"] for each in hand.heard_of(MESSAGES)) == LEVELS


topic.held(
    """
    Log messages that do not fit the buffer are dropped: logging never waits and never piles up.
        server/utilities/logging#implementation-considerations logging_never_waits_and_drops_what_does_not_fit
    """,
    tests="tests/server/test_logging.py::test_",
)
