"""One cause is one finding, in every form of a report, with a line for a shell that shows it without the kit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import attrs
import pytest
import trio
import trio.testing

from tests.kit.mutants.table import MUTANTS
from tests.kit.mutants.targets import over_sockets, process
from tests.kit.reports import SECRETS, report
from tests.kit.targets import TOOL, Connection, over_lines, plain
from trio_mcp.conformance.causes import causes
from trio_mcp.conformance.commands import command_for
from trio_mcp.conformance.engine import check_server
from trio_mcp.conformance.outcomes import CheckReport, Failure
from trio_mcp.conformance.report import FORMS, form_of
from trio_mcp.conformance.report.json import as_json
from trio_mcp.conformance.report.junit import junit
from trio_mcp.conformance.report.sarif import as_sarif
from trio_mcp.conformance.report.table import table
from trio_mcp.conformance.transcript.events import Event

LEGACY = "2025-11-25"


async def check(handle: Any, *rules: str) -> CheckReport:
    return await check_server(over_lines(handle), revisions=[LEGACY], rules=rules or None, examples=60, seed=3)


async def dies_of_cancellation(connection: Connection, message: dict[str, Any]) -> None:
    if message["method"] == "notifications/cancelled":
        await connection.stream.aclose()
    else:
        await plain(connection, message)


CRASH = ("bad-cancel-ignored", "cancel-races-survived", "request-answered")


async def test_a_crash_that_three_rules_see_is_one_finding(autojump_clock: trio.testing.MockClock) -> None:
    found = await check(dies_of_cancellation, *CRASH)
    ((first, *others),) = found.findings
    assert first.rule.id == "request-answered"
    assert [each.rule.id for each in others] == ["cancel-races-survived", "bad-cancel-ignored"]
    text = table(found)
    assert text.count("✗ request-answered") == 1
    assert "✗ cancel-races-survived" not in text
    assert "the same breaks cancel-races-survived  MUST" in text
    assert "2 MUSTs are broken, 1 SHOULD is broken, all by 1 cause" in text
    assert [each["rules"] for each in as_json(found)["findings"]] == [[first.rule.id, *(o.rule.id for o in others)]]
    (result,) = as_sarif(found)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("request-answered", "error")
    assert result["properties"]["also"] == [each.rule.id for each in others]
    suite = ElementTree.fromstring(junit(found)).find("testsuite")
    assert suite is not None
    messages = {case.get("name"): case[0].get("message", "") for case in suite.iterfind("testcase") if len(case)}
    assert messages["cancel-races-survived"].startswith("the same cause as request-answered: ")
    assert not messages["request-answered"].startswith("the same cause")
    page = form_of("a.html")(found)
    assert (page.count("<article"), page.count('id="bad-cancel-ignored"')) == (1, 1)
    # A rule that is known does not hide one that is new.
    assert [[each.rule.id for each in group] for group in found.knowing(["request-answered"]).findings] == [
        ["cancel-races-survived", "bad-cancel-ignored"],
        ["request-answered"],
    ]


async def test_two_faults_in_one_list_are_two_findings(autojump_clock: trio.testing.MockClock) -> None:
    async def lists(connection: Connection, message: dict[str, Any]) -> None:
        if message["method"] == "tools/list":
            tool = {**TOOL, "name": "a b", "outputSchema": {"type": "thing"}}
            await connection.answer(message, {"tools": [tool]})
        else:
            await plain(connection, message)

    found = await check(lists, "tool-name-format", "schemas-valid")
    assert [len(group) for group in found.findings] == [1, 1]


async def test_what_was_said_is_deeper_than_what_did_not_come(autojump_clock: trio.testing.MockClock) -> None:
    async def by_text(connection: Connection, message: dict[str, Any]) -> None:
        is_ping = message["method"] == "ping"
        await plain(connection, message | ({"id": f"{message['id']}"} if is_ping and "id" in message else {}))

    found = await check(by_text, "response-matches-request", "request-answered", "ping-answered")
    (group,) = found.findings
    assert group[0].rule.id == "response-matches-request"
    assert len(group) == 3


def test_a_failure_that_is_not_shrunk_joins_no_other() -> None:
    """Its exchange holds much that has nothing to do with it."""
    outcomes = [outcome for outcome in report().outcomes if outcome.failure is not None]
    assert causes(outcomes) == tuple((outcome.rule.id,) for outcome in outcomes)
    (first, *_) = outcomes
    assert first.failure is not None
    long = attrs.evolve(first.failure, transcript=first.failure.transcript * 100)
    assert len(causes([attrs.evolve(first, failure=long), attrs.evolve(first, failure=long)])) == 2


# --- without the kit --------------------------------------------------------------------------------------------------


def run(line: str) -> str:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False).stdout


async def shown(target: Any, name: str) -> Failure:
    mutant = MUTANTS[name]
    found = await check_server(target, revisions=[mutant.revision], rules=[mutant.rule], allow_writes=True)
    (outcome,) = found.broken
    assert outcome.failure is not None
    return outcome.failure


async def test_a_line_shows_a_failure_over_stdio() -> None:
    failure = await shown(process("answers the handshake with a text as id"), "answers the handshake with a text as id")
    assert failure.command.startswith("(printf '%s\\n' '{")
    said = await trio.to_thread.run_sync(run, failure.command)
    assert json.loads(said)["id"] == "1"


@pytest.mark.curl
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("skips name header", '"result"'),
        # It needs a session, whose id the line takes from the response to initialize.
        ("ended session answers", '"result": {}'),
    ],
)
async def test_a_line_shows_a_failure_over_http(name: str, says: str) -> None:
    async with over_sockets(MUTANTS[name].twin(), "http") as url:
        failure = await shown(url, name)
        assert "curl -sS" in failure.command
        said = await trio.to_thread.run_sync(run, failure.command)
    assert said.startswith("HTTP/1.1 20")
    assert says in said.rpartition("HTTP/1.1")[2]


def failing(*events: Event, transport: str = "stdio") -> Failure:
    opened = Event("open", "client", facts={"transport": transport})
    return Failure("no", (opened, *events), len(events), (), LEGACY, 1, 1, 0)


def test_a_line_is_made_of_any_bytes() -> None:
    text = b"\xff\x00'\\n \xe2\x82\xac%s"
    line = command_for(failing(Event("text", "client", text=text)), shutil.which("cat") or "cat")
    found = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60, check=False).stdout
    assert found == text + b"\n"
    assert line.isascii()
    assert line.isprintable()


@pytest.mark.parametrize(
    ("transport", "target", "line"),
    [
        ("tcp", "tcp://127.0.0.1:80", "| nc 127.0.0.1 80"),
        ("unix", "unix:/run/a", "| nc -U /run/a"),
        ("tls", "tls://127.0.0.1:80", ""),
        ("websocket", "ws://127.0.0.1:80", ""),
        ("memory", "own", ""),
    ],
)
def test_a_line_reaches_a_socket_if_a_shell_can(transport: str, target: str, line: str) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    found = command_for(failing(Event("message", "client", message=message), transport=transport), target)
    assert found.endswith(line)
    assert bool(found) == bool(line)


@pytest.mark.parametrize("ending", FORMS)
def test_a_line_gives_nothing_away(ending: str) -> None:
    found = report()
    lined = []
    for outcome in found.outcomes:
        failure = outcome.failure
        if failure is not None:
            transport = "http" if any(event.kind == "request" for event in failure.transcript) else "stdio"
            opened = Event("open", "client", facts={"transport": transport})
            failure = attrs.evolve(failure, transcript=(opened, *failure.transcript), at=failure.at + 1)
            failure = attrs.evolve(failure, command=command_for(failure, "python server.py"))
            assert failure.command
        lined.append(attrs.evolve(outcome, failure=failure))
    text = form_of(f"a{ending}")(attrs.evolve(found, outcomes=tuple(lined)))
    assert [each for each in SECRETS if each in text] == []
    assert "printf" in text
    assert "curl" in text


async def test_a_line_masks_the_words_of_a_command() -> None:
    code = "import sys; input(); print('{', flush=True); print('}', flush=True); input()"
    from trio_mcp import StdioServerParameters

    target = StdioServerParameters(sys.executable, ["-c", code, "--token", SECRETS[0]])
    found = await check_server(target, revisions=[LEGACY], rules=["stdout-clean"])
    (outcome,) = found.broken
    assert outcome.failure is not None
    assert SECRETS[0] not in outcome.failure.command
    assert "--token '***'" in outcome.failure.command
