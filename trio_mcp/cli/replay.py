"""``trio-mcp replay``: send a recorded client's messages again, and compare the responses with the recorded ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.cli.check import needs_kit, runnable
from trio_mcp.cli.exits import OK, Exit
from trio_mcp.cli.reporting import until_signalled
from trio_mcp.cli.targets import target_of
from trio_mcp.cli.text import clean_line, dumps
from trio_mcp.cli.tokens import TOKENS, authority_at, with_tokens
from trio_mcp.client.failover.parameters import FailoverParameters
from trio_mcp.sockets.listening import listen_tcp

if TYPE_CHECKING:
    # At run time, these modules are imported only where they are used; the second needs an extra.
    from trio_mcp.conformance.recorded_server.book import Book
    from trio_mcp.conformance.replay import Replayed

__all__ = ["run"]

MOST_EVENTS = 30
"""How many events are shown at most for a broken rule; the last is the one that breaks it (arbitrary)."""


def run(options: argparse.Namespace) -> int:
    """Replay the file; return 1 if a response differs from the recorded one, or a rule is broken."""
    if options.as_server:
        return _serve(options)
    needs_kit()
    from trio_mcp.conformance.credentials import credentials_for
    from trio_mcp.conformance.plans.plan_files import read_plan_file
    from trio_mcp.conformance.replay import replay_plan, replay_transcript
    from trio_mcp.conformance.transcript.files import kind_of_file, read_transcript
    from trio_mcp.conformance.wires.targets import open_wire_for

    target, tokens = with_tokens(options, target_of(options))
    if isinstance(target, FailoverParameters):
        raise Exit("a replay needs one way to reach the server, not several", hint=False)
    deadline = 10.0 if options.timeout is None else options.timeout

    async def replay() -> Replayed:
        async with authority_at(options.auth_server) as authority:
            open_wire = open_wire_for(target, credentials=credentials_for(tokens, authority.get("authority")))
            if is_plan:
                return await replay_plan(open_wire, read_plan_file(options.file), deadline=deadline)
            return await replay_transcript(open_wire, read_transcript(options.file), deadline=deadline)

    with runnable():
        is_plan = kind_of_file(options.file) == "plan"
        found = trio.run(replay)
    if options.json:
        print(dumps(_as_json(found)))
    else:
        print("\n".join(_lines(found, is_plan)))
    return found.status


# --- the server's part ------------------------------------------------------------------------------------------------


def _serve(options: argparse.Namespace) -> int:
    """Serve the recording until the client leaves, or until Ctrl-C."""
    from trio_mcp.conformance.recorded_server.book import read_book
    from trio_mcp.conformance.recorded_server.serving import serve_stdio

    for name in ("timeout", "json", "env", "header", "variable", "auth", *TOKENS, "auth_server"):
        if getattr(options, name) not in (None, False, []):
            raise Exit(f"--{name.replace('_', '-')} does not apply to --as-server")
    if options.http is not None and not 0 <= options.http < 65536:
        raise Exit(f"--http must be from 0 to 65535; got {options.http}")
    with runnable():
        book = read_book(options.file)
        serve = partial(serve_stdio, book) if options.http is None else partial(_serve_http, book, options.http)
        trio.run(until_signalled, serve)
    return OK


async def _serve_http(book: Book, port: int) -> None:
    from trio_mcp.conformance.recorded_server.http import PATH, RecordedHttp

    # Only programs of this machine can connect.
    async with listen_tcp("127.0.0.1", port, tls=False, allow_remote=False) as (listeners, url):
        place = url.removeprefix("tcp://")
        # The line is flushed, because the system may have chosen the port.
        print(
            f"trio-mcp replay: connect the client to http://{place}{PATH}, and press Ctrl-C to end",
            file=sys.stderr,
            flush=True,
        )
        async with background_nursery() as nursery:
            await trio.serve_listeners(RecordedHttp(book, nursery).serve, listeners)


# --- the client's part ------------------------------------------------------------------------------------------------


def _lines(found: Replayed, is_plan: bool) -> Iterator[str]:
    from trio_mcp.conformance.report.table import event_line
    from trio_mcp.conformance.report.view import folded, shown
    from trio_mcp.conformance.rules.catalogue import RULES

    for line in found.differences:
        yield f"different: {clean_line(line)}"
    for id_, verdict in found.broken.items():
        yield f"broken: {id_} ({RULES[id_].level}): {clean_line(verdict.problem or '')}"
        at = next((place for place, each in enumerate(found.events) if each is verdict.event), len(found.events) - 1)
        prologue, rest = shown(found.events[: at + 1], at)
        for each in folded(rest or prologue)[-MOST_EVENTS:]:
            yield event_line(each)
    for event in found.events if is_plan else ():
        if event.facts.get("what") == "unsent":
            yield f"note: not sent: {clean_line(str(event.facts.get('reason')))}"
    if found.masked:
        yield f"note: {found.masked} of the client's messages had a mask in place of a secret"
    if not found.status:
        yield "the rule is not broken any more" if is_plan else "the same as before, by the rules"


def _as_json(found: Replayed) -> dict[str, object]:
    from trio_mcp.conformance.transcript.files import as_line
    from trio_mcp.conformance.transcript.masking import Masker

    masker = Masker()
    return {
        "status": found.status,
        "differences": list(found.differences),
        "broken": {id_: verdict.problem for id_, verdict in found.broken.items()},
        "transcript": [as_line(masker.event(event)) for event in found.events],
    }
