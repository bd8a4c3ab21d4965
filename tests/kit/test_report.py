"""The forms of a report: each says all there is, without secrets, and whatever a target said does no harm."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import attrs
import pytest

from tests.kit.chromium import Page, opened
from tests.kit.reports import SECRETS, clean_report, report
from trio_mcp.conformance.plans.plan_files import read_plan_file, write_plan_files
from trio_mcp.conformance.report import FORMS, form_of
from trio_mcp.conformance.report.html import html
from trio_mcp.conformance.report.json import as_json
from trio_mcp.conformance.report.junit import junit
from trio_mcp.conformance.report.sarif import as_sarif
from trio_mcp.conformance.report.table import table
from trio_mcp.conformance.report.view import coverage
from trio_mcp.conformance.steps import Ask, AwaitResponses, Cancel
from trio_mcp.conformance.transcript.events import Event

RULES = [outcome.rule.id for outcome in report().outcomes]


@pytest.mark.parametrize("ending", FORMS)
def test_a_form_says_all_and_gives_nothing_away(ending: str) -> None:
    text = form_of(f"report{ending.upper()}")(report())
    named = RULES if ending != ".txt" else [outcome.rule.id for outcome in report().broken]
    assert [each for each in named if each not in text] == []
    assert [each for each in SECRETS if each in text] == []
    assert "the request #8 was cancelled, and got a response all the same" in text
    # What can't be seen is written as an escape: nothing of it reaches a terminal, a parser or an editor.
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e\ud800-\udfff]", text) is None
    text.encode()


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must end with one of \.html, \.json, \.xml, \.sarif, \.txt; got 'a\.pdf'"):
        form_of("a.pdf")


def test_the_table_shows_the_smallest_exchange() -> None:
    lines = table(report()).splitlines()
    at = lines.index("✗ no-response-after-cancel  MUST")
    assert lines[at : at + 10] == [
        "✗ no-response-after-cancel  MUST",
        "  A receiver of a cancellation sends no response to the cancelled request.",
        "  https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation#behavior-requirements",
        "  → the request #8 was cancelled, and got a response all the same",
        "  seen 3 of 3 times, in revision 2025-11-25",
        "    (after 5 events of connecting and listing)",
        '       0.000 s  ──▶ tools/call #8  {"name": "log_in", "arguments": {"password": "***", "note": "key…',
        '       0.010 s  ──▶ notifications/cancelled  {"requestId": 8, "reason": "changed my mind"}',
        '  ✗    0.260 s  ◀── result #8  {"content": [{"type": "text", "text": "welcome"}]}',
        "       0.270 s   ·  still responds, after 0.002 s",
    ]
    assert lines[-1] == "2 MUSTs are broken, 1 known from the baseline."
    assert table(clean_report()).splitlines()[-1] == "All 2 rules that were exercised hold."


def test_json_is_for_programs() -> None:
    found: Any = json.loads(json.dumps(as_json(report())))
    assert found["status"] == 1
    assert found["counts"] == {"broken": 3, "held": 2, "not exercised": 1, "not checkable": 1}
    failure = found["rules"][0]["failure"]
    assert (failure["at"], failure["messages"], failure["known"]) == (7, 3, False)
    assert failure["transcript"][failure["at"]]["message"]["result"]["content"][0]["text"] == "welcome"


def test_junit_fails_where_the_exit_status_does() -> None:
    suite = ElementTree.fromstring(junit(report())).find("testsuite")
    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped", "errors")} == {
        "tests": "7",
        "failures": "2",
        "skipped": "3",
        "errors": "0",
    }
    failed = {case.get("name") for case in suite.iterfind("testcase") if case.find("failure") is not None}
    assert failed == {"no-response-after-cancel", "header-method-agrees"}


def test_sarif_has_the_structure_that_its_schema_wants() -> None:
    """SARIF 2.1.0, sections 3.13 (log), 3.14 (run), 3.19 (driver), 3.27 (result), 3.36 (code flow), 3.49 (rule)."""
    log = as_sarif(report())
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == RULES
    assert all(rule["shortDescription"]["text"] and rule["helpUri"].startswith("https://") for rule in rules)
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [
        ("no-response-after-cancel", "error"),
        ("header-method-agrees", "error"),
        ("error-names-field", "warning"),
    ]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        assert re.fullmatch(r"[\w/:.~%-]+", place["artifactLocation"]["uri"])
        assert place["region"]["startLine"] >= 1
        steps = result["codeFlows"][0]["threadFlows"][0]["locations"]
        assert all(step["location"]["message"]["text"] for step in steps)
    assert [result.get("suppressions", [{}])[0].get("kind") for result in run["results"]] == [None, None, "external"]


def test_what_leads_to_a_failure_is_written_and_read(tmp_path: Path) -> None:
    written = write_plan_files(report(), tmp_path / "replays")
    assert [path.name for path in written] == [f"{outcome.rule.id}.replay.json" for outcome in report().broken]
    found = read_plan_file(written[0])
    assert found.plan == (Ask("tools/call", {"name": "log_in"}), Cancel(), AwaitResponses())
    assert (found.rule, found.revision, found.about["seed"]) == ("no-response-after-cancel", "2025-11-25", 42)


def test_a_baseline_decides_what_is_known() -> None:
    known = report().knowing({"no-response-after-cancel", "header-method-agrees", "answered-once"})
    assert (known.status, [outcome.known for outcome in known.broken]) == (0, [True, True, False])
    assert "1 SHOULD is broken, 2 known from the baseline." in table(known)


def test_coverage_counts_the_sentences_that_bind_the_side() -> None:
    found = {(each.revision, each.page): each for each in coverage(report())}
    page = found["2025-11-25", "basic/utilities/ping"]
    # None of the rules of the report is about it.
    assert page.exercised == 0
    assert page.idle > 0
    assert sum(each.exercised for each in found.values()) > 0
    assert {revision for revision, _ in found} == {"2025-11-25", "2026-07-28"}
    assert coverage(attrs.evolve(report(), revisions=("2024-11-05",))) == []


# --- the page -----------------------------------------------------------------------------------------------------


def test_a_page_loads_nothing_and_runs_nothing() -> None:
    text = html(report())
    assert re.findall(r"<(?:script|iframe|img|object|embed|base|form)\b", text) == []
    # Links are followed by a reader, not by the browser.
    assert {tag for tag, _ in re.findall(r"<(\w+)[^>]*\b(href|src)=.https?:", text)} == {"a"}
    assert "url(" not in text
    assert "@import" not in text
    assert html(report()) == text


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with opened() as found:
        yield found


@pytest.mark.chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_a_page_in_a_browser(page: Page, tmp_path: Path, width: int, scheme: str) -> None:
    """It asks for nothing, complains of nothing, fits the window, and shows each failure; hostile texts stay texts."""
    path = tmp_path / "report.html"
    path.write_text(html(report()), encoding="utf-8")
    await page.show(path.as_uri(), width=width, scheme=scheme)
    if folder := os.environ.get("TRIO_MCP_PICTURES"):
        (Path(folder) / f"report-{width}-{scheme}.png").write_bytes(await page.picture())
    assert [url for url in page.requests if not url.startswith("data:")] == [path.as_uri()]
    assert page.complaints == []
    assert await page.value_of("document.documentElement.scrollWidth") <= width
    assert await page.value_of("document.scripts.length") == 0
    assert await page.value_of("document.querySelectorAll('article svg.diagram .bad').length") == 3
    assert await page.value_of("document.querySelector('.info').textContent.includes('<script>alert(1)</script>')")
    red, green, blue = await page.value_of("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (red + green + blue < 200) == (scheme == "dark")


@pytest.mark.chromium
async def test_a_page_whose_rules_all_hold(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html(attrs.evolve(clean_report(), ended="interrupted")), encoding="utf-8")
    await page.show(path.as_uri(), width=1280, scheme="light")
    assert page.complaints == []
    assert await page.value_of("document.querySelector('.verdict.good').innerText") == (
        "✓\nAll 2 rules that were exercised hold"
    )
    assert "interrupted" in await page.value_of("document.querySelector('.warning').innerText")
    assert await page.value_of("document.querySelector('#broken')") is None


def test_what_was_never_seen_again_is_rare_and_fails() -> None:
    """A report that says "1 MUST is broken" never has status 0, unless the baseline names the rule."""
    found = report()
    once = [
        attrs.evolve(outcome, failure=outcome.failure and attrs.evolve(outcome.failure, seen=0))
        for outcome in found.outcomes
    ]
    found = attrs.evolve(found, outcomes=tuple(once))
    assert (found.status, len(found.broken)) == (1, 3)
    musts = sum(outcome.fails for outcome in found.outcomes)
    assert musts
    assert f'failures="{musts}"' in junit(found)
    assert "rare: seen once, and 0 of 3 times when run again" in table(found)
    known = found.knowing({outcome.rule.id for outcome in found.broken})
    assert known.status == 0


@pytest.mark.parametrize("trouble", [{"undecided": ("it fell silent",)}, {"ended": "target died"}])
def test_what_could_not_be_decided_is_not_green_in_any_form(trouble: dict[str, Any]) -> None:
    found = attrs.evolve(clean_report(), **trouble)
    assert found.status == 2
    why = " ".join(trouble.get("undecided", ("the target died",)))
    assert f"but the result is undecided: {why}" in " ".join(table(found).split())
    assert 'class="verdict bad"' in html(found)
    assert ('errors="1"' in junit(found), junit(found).count("<error ")) == (True, 1)
    (invocation,) = as_sarif(found)["runs"][0]["invocations"]
    assert invocation == {"executionSuccessful": False, "exitCode": 2}
    # Rules that are surely broken come before those that can't be decided.
    assert attrs.evolve(report(), **trouble).status == 1


def test_standard_error_is_one_line_of_a_table_and_whole_on_a_page() -> None:
    """Some servers print a page for each message, which would hide the exchange."""
    (outcome, *others) = report().outcomes
    assert outcome.failure is not None
    at = outcome.failure.at
    said = tuple(
        Event("mark", "kit", time=0.1, text=f"trouble {number}".encode(), facts={"what": "stderr"})
        for number in range(1, 10)
    )
    events = (*outcome.failure.transcript[:at], *said, *outcome.failure.transcript[at:])
    failure = attrs.evolve(outcome.failure, transcript=events, at=at + len(said))
    found = attrs.evolve(report(), outcomes=(attrs.evolve(outcome, failure=failure), *others))
    lines = [line for line in table(found).splitlines() if "standard error" in line or "trouble" in line]
    assert [line.split("·")[1].strip() for line in lines] == ["standard error  9 lines, the first: trouble 1"]
    assert all(f"trouble {number}" in html(found) for number in range(1, 10))


def test_the_last_lines_say_what_ended_the_check_and_whether_more_time_would_help() -> None:
    found = attrs.evolve(clean_report(), ended="complete", wanted=200)
    for changes, said in [
        ({"examples": 200}, "All 200 examples were run: to try more, raise the number of examples, not the time."),
        ({"examples": 143, "ended": "time"}, "The time was up after 143 of 200 examples; with more time, the"),
        ({"examples": 30}, "The check ended after 30 of 200 examples, as there is nothing else to try."),
    ]:
        assert said in table(attrs.evolve(found, **changes))


def test_an_event_without_data_does_not_count_as_a_message() -> None:
    """Streams begin with one, so that a client can resume them; the texts that count are those that are not JSON."""
    failure = report().broken[0].failure
    assert failure is not None
    events = (
        Event("mark", "kit", facts={"what": "begin"}),
        Event("message", "client", exchange=1, message={"jsonrpc": "2.0", "id": 1, "method": "ping"}),
        Event("text", "server", exchange=1, text=b"", facts={"event_id": "1-0"}),
        Event("message", "server", exchange=1, message={"jsonrpc": "2.0", "id": 1, "result": {}}),
        Event("text", "server", exchange=1, text=b"{torn"),
        Event("mark", "kit", text=b"trouble", facts={"what": "stderr"}),
    )
    assert attrs.evolve(failure, transcript=events).messages == 3
