"""Log messages to clients (`server/utilities/logging`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import date
from math import inf
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.server.harness import server_with
from trio_mcp import Client, Context, McpLogHandler, Server, SessionOptions

LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
BOTH = ["legacy", "2026-07-28"]


class Heard:
    """What a client's `on_log` has got."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str | None, Any]] = []

    def __call__(self, message: Any) -> None:
        self.messages.append((message.level, message.logger, message.data))

    async def all(self) -> list[tuple[str, str | None, Any]]:
        """Return everything heard, after whatever is on its way has arrived."""
        await wait_all_tasks_blocked()
        return self.messages


async def logged(tool: Any, mode: str = "legacy", level: Any = "debug") -> list[tuple[str, str | None, Any]]:
    """Return what a client hears of one call of a tool."""
    heard = Heard()
    async with Client(server_with(tool), mode=mode, log_level=level, on_log=heard) as client:
        assert not (await client.call_tool(tool.__name__)).is_error
        return await heard.all()


@pytest.fixture
def handler() -> Iterator[McpLogHandler]:
    handler = McpLogHandler()
    app.addHandler(handler)
    app.setLevel(logging.DEBUG)
    yield handler
    app.removeHandler(handler)


app = logging.getLogger("app")


async def test_a_legacy_client_that_never_set_a_level_gets_info_and_above() -> None:
    """`logging/setLevel` of every revision: without it the server may decide."""

    async def speak(ctx: Context) -> None:
        for level in LEVELS:
            await ctx.log(level, level)  # type: ignore[arg-type]

    assert [level for level, _, _ in await logged(speak, level=None)] == LEVELS[1:]


@pytest.mark.parametrize("mode", BOTH)
async def test_data_is_anything_with_a_json_form_and_mistakes_are_told(mode: str) -> None:
    mistakes: list[str] = []

    async def speak(ctx: Context) -> None:
        await ctx.log("info", {"day": date(2026, 7, 28), "n": [1, None]}, logger="db")
        await ctx.log("info", None)
        await ctx.log("info", inf)
        for arguments in [("loud", "x"), ("INFO", "x"), (None, "x"), ("info", object()), ("info", "x", 7)]:
            with pytest.raises((ValueError, TypeError)) as caught:
                await ctx.log(*arguments)  # type: ignore[arg-type]
            mistakes.append(f"{caught.type.__name__}: {caught.value}")

    assert await logged(speak, mode) == [
        ("info", "db", {"day": "2026-07-28", "n": [1, None]}),
        ("info", None, None),
        ("info", None, "Infinity"),
    ]
    names = ", ".join(LEVELS)
    assert mistakes[:3] == [
        f"{kind}: a log level must be one of {names}; got {level!r}"
        for kind, level in (("ValueError", "loud"), ("ValueError", "INFO"), ("TypeError", None))
    ]
    assert mistakes[3].startswith("TypeError: the data of a log message can't be turned into JSON")
    assert mistakes[4] == "TypeError: logger must be a string, got 7"


async def test_a_bad_level_is_an_error_even_without_a_listener() -> None:

    async def speak(ctx: Context) -> None:
        await ctx.log("loud", "x")  # type: ignore[arg-type]

    async with Client(server_with(speak, expose_errors=True), mode="2026-07-28") as client:
        assert "must be one of debug" in (await client.call_tool("speak")).text


@pytest.mark.parametrize("mode", BOTH)
async def test_after_the_answer_or_a_cancellation_nothing_is_sent(mode: str, handler: McpLogHandler) -> None:
    heard, late, go, ended = Heard(), trio.Event(), trio.Event(), trio.Event()
    async with trio.open_nursery() as background:
        server = Server("x")

        async def afterwards(ctx: Context) -> None:
            await go.wait()
            await ctx.log("error", "late")
            app.error("late")
            late.set()

        @server.tool
        async def leave(ctx: Context) -> None:
            background.start_soon(afterwards, ctx)

        @server.tool
        async def stay(ctx: Context) -> None:
            await ctx.log("error", "in time")
            try:
                await trio.sleep_forever()
            finally:
                app.error("cancelled")
                with trio.CancelScope(shield=True):
                    await ctx.log("error", "cancelled")
                ended.set()

        async with Client(server, mode=mode, log_level="debug", on_log=heard) as client:
            await client.call_tool("leave")
            go.set()
            await late.wait()
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.call_tool, "stay")
                    await wait_all_tasks_blocked()
                    scope.cancel()
            await ended.wait()
            assert await heard.all() == [("error", None, "in time")]


# --- the handler of Python's logging ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("is_async", [True, False])
async def test_records_go_to_the_client_of_the_request(mode: str, is_async: bool, handler: McpLogHandler) -> None:
    """Records of a tool's task, child tasks and threads arrive in order and before the response, at no other client."""
    server = Server("x")

    def say(who: str) -> None:
        logging.getLogger("app.sub").info("hello %s", who)
        app.error("done with %s", who)

    if is_async:

        @server.tool
        async def speak(who: str) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, say, who)
    else:

        @server.tool
        def speak(who: str) -> None:
            say(who)

    one, other = Heard(), Heard()
    async with (
        Client(server, mode=mode, log_level="debug", on_log=one) as first,
        Client(server, mode=mode, log_level="error", on_log=other) as second,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.call_tool, "speak", {"who": "first"})
            nursery.start_soon(second.call_tool, "speak", {"who": "second"})
        assert await one.all() == [("info", "app.sub", "hello first"), ("error", "app", "done with first")]
        assert await other.all() == [("error", "app", "done with second")]
    assert handler.dropped == 0


async def test_levels_of_python_become_those_of_the_protocol(handler: McpLogHandler) -> None:
    async def speak() -> None:
        for number in (5, 10, 15, 20, 25, 30, 35, 40, 50, 60):
            app.log(number, "%d", number)

    app.setLevel(1)
    heard = await logged(speak)
    assert [data for _, _, data in heard] == ["5", "10", "15", "20", "25", "30", "35", "40", "50", "60"]
    levels = "debug debug debug info notice warning warning error critical critical"
    assert [level for level, _, _ in heard] == levels.split()


async def test_a_record_is_its_message_unless_a_formatter_says_more(handler: McpLogHandler) -> None:
    """A traceback may hold what a client must not see (Security: internal system details)."""
    server, heard = Server("x"), Heard()

    @server.tool
    async def speak() -> None:
        try:
            raise ZeroDivisionError("a secret")
        except ZeroDivisionError:
            app.exception("it failed")

    async with Client(server, log_level="debug", on_log=heard) as client:
        await client.call_tool("speak")
        assert [data for _, _, data in await heard.all()] == ["it failed"]
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        await client.call_tool("speak")
        text = (await heard.all())[-1][2]
        assert text.startswith("ERROR it failed\nTraceback")
        assert "a secret" in text


async def test_records_from_outside_a_request_or_from_the_library_are_not_sent(handler: McpLogHandler) -> None:
    server, heard = Server("x"), Heard()
    library = logging.getLogger("trio_mcp")
    library.addHandler(handler)
    try:

        @server.tool
        async def fail() -> None:
            raise ZeroDivisionError("which the library logs")

        async with Client(server, mode="legacy", on_log=heard) as client:
            assert (await client.call_tool("fail")).is_error
            app.error("outside")
            assert await heard.all() == []
    finally:
        library.removeHandler(handler)


async def test_logging_never_waits_and_drops_what_does_not_fit(handler: McpLogHandler) -> None:
    """Logging without a checkpoint fills the outgoing queue; the rest is counted, and the response still comes."""
    server, heard = Server("x", options=SessionOptions(max_outgoing_messages=8)), Heard()

    @server.tool
    async def speak(times: int) -> str:
        for number in range(times):
            app.info("%d", number)
        return "done"

    async with Client(server, mode="legacy", on_log=heard) as client:
        assert (await client.call_tool("speak", {"times": 5000})).data == "done"
        received = [int(data) for _, _, data in await heard.all()]
        assert 8 <= len(received) < 5000
        assert received == list(range(len(received)))
        assert handler.dropped == 5000 - len(received)
        await client.call_tool("speak", {"times": 1})
        assert len(await heard.all()) == len(received) + 1


async def test_threads_leave_a_bounded_number_of_records_to_the_event_loop(
    handler: McpLogHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_mcp.server.log_messages.MAX_PENDING_RECORDS", 5)
    small = McpLogHandler()
    other = logging.getLogger("other")
    other.setLevel(logging.DEBUG)
    other.addHandler(small)
    server, heard = Server("x"), Heard()
    logged = threading.Event()

    @server.tool
    async def speak() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, burst)
            await wait_all_tasks_blocked()
            logged.wait()  # the event loop stands still while the thread logs

    def burst() -> None:
        for number in range(20):
            other.info("%d", number)
        logged.set()

    try:
        async with Client(server, mode="legacy", on_log=heard) as client:
            await client.call_tool("speak")
            received = [data for _, _, data in await heard.all()]
            # How many the loop takes before it is blocked depends on the threads; none is lost uncounted.
            assert len(received) + small.dropped == 20
            assert len(received) >= 5
            assert received[:5] == ["0", "1", "2", "3", "4"]
            small.dropped = 0
            logged.clear()
            await client.call_tool("speak")  # its places are free again
            assert len(await heard.all()) - len(received) + small.dropped == 20
    finally:
        other.removeHandler(small)


async def test_a_record_that_cannot_be_sent_does_no_harm(
    handler: McpLogHandler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad format string is reported on standard error, as `logging` does; odd text arrives escaped."""
    monkeypatch.setattr(app, "handlers", [handler])  # those of pytest do raise
    monkeypatch.setattr(app, "propagate", False)
    server, heard = Server("x"), Heard()

    @server.tool
    async def speak() -> str:
        app.info("%d", "no number")
        app.info("half a pair: \ud800")
        return "done"

    async with Client(server, mode="legacy", on_log=heard) as client:
        assert (await client.call_tool("speak")).data == "done"
        assert [data for _, _, data in await heard.all()] == ["half a pair: \\ud800"]
    assert "--- Logging error ---" in capsys.readouterr().err
