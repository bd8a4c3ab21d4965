"""What a check reached: how calls are counted, what is said of those that are refused, and what is untested."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
import trio.testing

from tests.kit.chained import TOOLS, Chained
from tests.kit.reports import clean_report, report
from trio_mcp import Server
from trio_mcp.conformance.engine import check_server
from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.keywords import MOST_KEYWORDS, Keywords
from trio_mcp.conformance.outcomes import CheckReport, Reached
from trio_mcp.conformance.reach import ReachCounts
from trio_mcp.conformance.report.html import html
from trio_mcp.conformance.report.json import as_json
from trio_mcp.conformance.report.junit import junit
from trio_mcp.conformance.report.sarif import as_sarif
from trio_mcp.conformance.report.table import table
from trio_mcp.conformance.run import Sent
from trio_mcp.conformance.steps import Ask
from trio_mcp.types import ToolAnnotations

LEGACY = "2025-11-25"


class Closed(Chained):
    """A server that refuses each call."""

    def call(self, name: str, arguments: Any) -> dict[str, Any]:
        return {"isError": True, "content": [{"type": "text", "text": f"{name} needs a repository that exists"}]}


# --- untested ---------------------------------------------------------------------------------------------------------


async def test_a_server_that_refuses_each_call_is_untested(autojump_clock: trio.testing.MockClock) -> None:
    found = await check_server(Closed().target, revisions=[LEGACY], rules=["answered-once"], examples=60)
    called = sum(each.called for each in found.reached if not each.keyword)
    assert called > 100
    assert (found.broken, found.ended, found.status) == ((), "complete", 2)
    assert found.untested == f"the server is untested, as each of the {called:,} calls was refused"
    assert f"but the result is undecided: {found.untested}." in " ".join(table(found).split())
    (tool,) = [each for each in found.reached if each.name == TOOLS[3] and not each.keyword]
    assert tool.why == f"all {tool.called} calls were refused: '{TOOLS[3]} needs a repository that exists'"


async def test_a_server_with_nothing_to_call_is_not_untested(autojump_clock: trio.testing.MockClock) -> None:
    found = await check_server(Server("empty"), rules=["answered-once"], examples=20)
    assert (found.reached, found.untested, found.status) == ((), "", 0)


async def test_one_accepted_call_is_enough_and_a_tool_that_may_not_be_called_is_said(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server("ours")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def read() -> str:
        """Read."""
        return "a"

    @server.tool
    async def write() -> str:
        """Write."""
        return "a"

    found = await check_server(server, rules=["answered-once"], examples=60)
    assert (found.untested, found.status) == ("", 0)
    assert {each.name: (each.accepted > 0, each.why) for each in found.reached if not each.keyword} == {
        "read": (True, ""),
        "write": (False, "it may not be called, or no arguments can be made for it; the notes say which"),
    }


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((1, 0, 1), "the server is untested, as the only call was refused"),
        ((3, 0, 3), "the server is untested, as each of the 3 calls was refused"),
        ((3, 0, 1), "the server is untested, as each of the 3 calls was refused or had no answer"),
        ((3, 0, 0), "the server is untested, as each of the 3 calls had no answer"),
        ((3, 1, 2), ""),
        ((0, 0, 0), ""),
    ],
)
def test_what_is_untested(counts: tuple[int, int, int], said: str) -> None:
    found = attrs.evolve(clean_report(), reached=(Reached("tool", "a", *counts),))
    assert (found.untested, found.status) == (said, 2 if said else 0)
    # Keywords are not counted by themselves, and a broken MUST comes first.
    assert attrs.evolve(found, reached=(Reached("tool", "a", *counts, keyword="/type"),)).untested == ""
    assert attrs.evolve(report(), reached=found.reached).status == 1


def test_each_form_says_that_a_server_is_untested() -> None:
    why = "all 9 calls were refused: 'needs a repository'"
    found = attrs.evolve(clean_report(), reached=(Reached("tool", "a", 9, 0, 9, why),))
    said = "the server is untested, as each of the 9 calls was refused"
    assert all(each in " ".join(table(found).split()) for each in (said, why, "Reached: 0 of 1 tool."))
    page = html(found)
    assert ('class="verdict bad"' in page, said in page) == (True, True)
    assert (as_json(found)["untested"], as_json(found)["status"]) == (said, 2)
    assert 'type="untested"' in junit(found)
    (run,) = as_sarif(found)["runs"]
    assert run["properties"]["untested"] == said
    assert run["invocations"][0] == {
        "executionSuccessful": False,
        "exitCode": 2,
        "toolExecutionNotifications": [{"level": "warning", "message": {"text": f"tool a: {why}"}}],
    }


# --- the counts, in each form -----------------------------------------------------------------------------------------


def test_each_form_says_what_was_reached() -> None:
    found = report()
    line = "Reached: 1 of 2 tools, 1 of 2 schema keywords, 0 of 1 prompt."
    text = table(found)
    assert line in text
    (row,) = [each for each in text.splitlines() if each.startswith("tool log_in")]
    assert row.split() == ["tool", "log_in", "41", "40", "1", "1", "of", "2"]
    assert "no call was made in this check" in text
    assert line in html(found)
    (log_in,) = [each for each in as_json(found)["reached"] if each["name"] == "log_in"]
    assert (log_in["called"], log_in["keywords"][0]["broken"]) == (41, 7)
    assert f'name="reached" value="{line}"' in junit(found)
    assert 'name="calls of prompt greet" value="called 0, accepted 0, refused 0: no call was made' in junit(found)
    (run,) = as_sarif(found)["runs"]
    assert {"of": "prompt greet", "called": 0, "accepted": 0, "refused": 0, "keywordsNeverReached": []} in (
        run["properties"]["reached"]
    )


def test_a_report_without_calls_has_no_such_part() -> None:
    found = attrs.evolve(clean_report(), reached=())
    assert "eached" not in table(found)
    assert 'id="reached"' not in html(found)


def test_a_long_list_is_cut_in_a_table_only() -> None:
    many = tuple(Reached("resource", f"memo://{number}", 1, 1) for number in range(100))
    found = attrs.evolve(clean_report(), reached=many)
    assert "  … and 70 more" in table(found).splitlines()
    assert len(as_json(found)["reached"]) == 100


# --- counting ---------------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": 1},
        "b": {"anyOf": [{"type": "string", "maxLength": 3}, {"$ref": "#/$defs/node"}]},
    },
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
}


def counted(*calls: tuple[dict[str, Any], dict[str, Any] | None], **changes: Any) -> list[Reached]:
    """Return what is counted of calls with these arguments and answers."""
    reach = ReachCounts()
    tool = {"name": "t", "inputSchema": SCHEMA}
    reach.meet(Facts(LEGACY, "memory", tools={"t": tool}, callable_tools=("t",)))
    sent = []
    for arguments, answer in calls:
        params = {"name": "t", "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        step = Ask("tools/call", params, **changes)
        sent.append(Sent(message, answer and {"jsonrpc": "2.0", "id": 1, **answer}, began=0.0, step=step))
    reach.take(sent)
    return list(reach.reached([]))


GOOD = {"result": {"content": []}}
BAD = {"error": {"code": 1, "message": "no"}}


def test_calls_are_counted_by_tool_and_by_keyword() -> None:
    tool, *keywords = counted(
        ({"a": 1}, GOOD), ({"a": 2, "b": "x"}, BAD), ({"a": 3, "b": {"next": {}}}, None), ({"a": 0}, BAD)
    )
    assert (tool.called, tool.accepted, tool.refused, tool.why) == (3, 1, 1, "")
    counts = {each.keyword: (each.called, each.accepted, each.refused, each.broken) for each in keywords}
    assert counts == {
        "/type": (3, 1, 1, 0),
        "/required": (3, 1, 1, 0),
        "/additionalProperties": (3, 1, 1, 0),
        "/properties/a": (3, 1, 1, 0),
        "/properties/a/type": (3, 1, 1, 0),
        # A call that breaks a keyword on purpose is not counted among the calls of the tool.
        "/properties/a/minimum": (3, 1, 1, 1),
        "/properties/b": (2, 0, 1, 0),
        "/properties/b/anyOf": (2, 0, 1, 0),
        "/properties/b/anyOf/0": (1, 0, 1, 0),
        "/properties/b/anyOf/0/type": (1, 0, 1, 0),
        "/properties/b/anyOf/0/maxLength": (1, 0, 1, 0),
        "/properties/b/anyOf/1": (1, 0, 0, 0),
        "/properties/b/anyOf/1/$ref": (1, 0, 0, 0),
        "/$defs/node/type": (1, 0, 0, 0),
        "/$defs/node/properties/next": (1, 0, 0, 0),
        "/$defs/node/properties/next/$ref": (1, 0, 0, 0),
    }


def test_why_nothing_was_accepted_is_said_in_the_words_of_the_server() -> None:
    """Messages that differ in a value count as one; no secret is quoted."""
    calls = [({"a": n}, {"error": {"code": 1, "message": f"no item {n}"}}) for n in range(1, 6)]
    secret = ({"a": 9}, {"error": {"code": 1, "message": "password=hunter2 is wrong"}})
    tool = counted(*calls, secret)[0]
    assert tool.why == "all 6 calls were refused: 'no item 1' (5 times), and 'password=*** is wrong' (once)"
    assert counted(({"a": 1}, BAD), ({"a": 1}, None))[0].why == (
        "of 2 calls, 1 was refused, and the others had no answer: 'no'"
    )
    assert counted(({"a": 1}, None))[0].why == "the only call had no answer"
    assert counted()[0].why == "no call was made in this check"
    assert {each.why for each in counted()[1:]} == {"nothing was called"}


@pytest.mark.parametrize("message", [None, 5, {}, "", "x" * 10_000_000, "'" * 100_000, "\x00\u202e\ud800"])
def test_a_reason_is_bounded_whatever_it_is(message: Any) -> None:
    (tool, *_) = counted(*[({"a": n}, {"error": {"code": 1, "message": message}}) for n in range(1, 50)])
    assert tool.why.startswith("all 49 calls were refused")
    assert len(tool.why) < 1000
    found = attrs.evolve(clean_report(), reached=(tool,))
    for text in (table(found), html(found), junit(found), json.dumps(as_json(found)), json.dumps(as_sarif(found))):
        assert "\u202e" not in text


def test_a_call_with_other_headers_is_not_counted() -> None:
    assert counted(({"a": 1}, BAD), headers={"mcp-method": "x"})[0].called == 0


# --- keywords ---------------------------------------------------------------------------------------------------------


def wide(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(count)}}


def nested(depth: int) -> Any:
    found: Any = {"type": "string"}
    for _ in range(depth):
        found = {"properties": {"a": found}}
    return found


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        5,
        {"$ref": "#"},
        {"$ref": 5},
        {"$ref": "#/$defs/%"},
        {"$ref": "https://example.invalid/"},
        {"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}},
        {"properties": 5, "required": 5, "anyOf": 5, "allOf": {}, "items": [], "prefixItems": 1},
        {"properties": {"a": {"$ref": "#"}, "b": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}},
        {"anyOf": [{"$ref": "#"}] * 50, "allOf": [{"$ref": "#"}] * 50, "items": {"$ref": "#"}},
        {"additionalProperties": {"$ref": "#"}, "items": {"$ref": "#"}},
        {"patternProperties": {"^(a+)+$": {"type": "string"}}, "pattern": "(a+)+$"},
        wide(5000),
        nested(500),
    ],
)
def test_keywords_are_bounded_whatever_the_schema(schema: Any) -> None:
    found = Keywords(schema)
    assert len(found.known) <= MOST_KEYWORDS
    values: list[Any] = [None, 5, "a" * 1000, [[[[]]] * 100], {"a": {"b": {"a": [{"b": 1}] * 200}}}, wide(3000)]
    for value in values:
        assert set(found.applying(value)) <= set(found.known)


def test_the_keywords_of_all_tools_are_bounded() -> None:
    reach = ReachCounts()
    tools = {f"t{number}": {"name": f"t{number}", "inputSchema": wide(200)} for number in range(200)}
    reach.meet(Facts(LEGACY, "memory", tools=tools, callable_tools=tuple(tools)))
    found = list(reach.reached([]))
    assert sum(not each.keyword for each in found) == 200
    assert sum(bool(each.keyword) for each in found) <= 5000 + MOST_KEYWORDS


def test_a_report_of_a_client_has_none() -> None:
    assert CheckReport("c", "client", "http", (), "", 0, 0, 0, 0.0, 0.0, ()).reached == ()
