"""The kit judges a protected server: with two users, with tokens of an authorization server, and without a leak."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from tests.kit.mutants.protected import (
    METADATA,
    URL,
    WELL_KNOWN,
    WRITES,
    Invalid,
    Protected,
    ProtectedTasks,
    ReplaysAcrossSessions,
)
from tests.kit.mutants.server import MODERN, Twin
from tests.kit.mutants.targets import in_memory
from tests.kit.mutants.web import Answer
from tests.kit.own import OWN, make_server
from trio_mcp import HttpServerParameters, StdioServerParameters
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.conformance.credentials import KINDS, Credentials, credentials_for
from trio_mcp.conformance.engine import check_server, preview_server
from trio_mcp.conformance.judging import first_broken
from trio_mcp.conformance.outcomes import CheckReport
from trio_mcp.conformance.plans.moves.catalogue import MOVES
from trio_mcp.conformance.plans.plan_files import read_plan_file, write_plan_files
from trio_mcp.conformance.replay import replay_plan
from trio_mcp.conformance.report import FORMS
from trio_mcp.conformance.rules import authorization
from trio_mcp.conformance.rules.catalogue import RULES
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import Rule
from trio_mcp.conformance.run import PlanRunner
from trio_mcp.conformance.steps import Ask, AwaitResponses, Http, plan_from_json, plan_to_json
from trio_mcp.conformance.transcript import read_transcript, write_transcript
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.wires.targets import open_wire_for
from trio_mcp.errors import TransportError
from trio_mcp.http.client.parameters import HttpServerParameters as Parameters

OURS = {rule.id for rule in vars(authorization).values() if isinstance(rule, Rule)}
"""The rules of authorization."""

EXAMPLES = 140
"""Enough for each move to have a plan of its own; `.ci/long kit` makes more."""


def problems(report: CheckReport) -> list[tuple[str, str]]:
    return [(outcome.rule.id, outcome.failure.problem if outcome.failure else "") for outcome in report.broken]


def held(report: CheckReport) -> set[str]:
    return {outcome.rule.id for outcome in report.outcomes if outcome.status == "held"} & OURS


def token(**claims: Any) -> str:
    """Return a JWT with a signature that is never checked."""
    parts = [{"alg": "ES256", "kid": "1"}, {"iss": "https://id.example.com", **claims}]
    return ".".join(
        [
            *(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts),
            "c2lnbmVkLWJ5LW5vLW9uZQ",
        ]
    )


ALICE, BOB = token(sub="alice"), token(sub="bob")


# --- healthy servers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("habit", "revision", "kept"),
    [
        (Protected, MODERN, {"audience-in-capitals", "ext-task-of-its-user", "scope-challenge-is-enough"}),
        pytest.param(Protected, "2025-06-18", {"session-is-no-token", "session-of-its-user"}, marks=pytest.mark.again),
        pytest.param(
            ProtectedTasks,
            "2025-11-25",
            {"task-of-its-user", "events-of-their-user", "session-of-its-user"},
            marks=pytest.mark.again,
        ),
    ],
)
async def test_the_protected_twin_breaks_nothing(
    habit: type[Protected], revision: str, kept: set[str], autojump_clock: trio.testing.MockClock
) -> None:
    async with in_memory(Twin(habit.session, web=habit), "http") as target:
        report = await check_server(target, revisions=[revision], examples=EXAMPLES, allow_writes=True, time=600.0)
    assert (problems(report), report.notes, report.undecided) == ([], (), ())
    basic = {"missing-token-refused", "unsigned-token-refused", "expired-token-refused", "foreign-audience-refused"}
    assert kept | basic | {"resource-metadata-served", "unauthorized-401"} <= held(report)


@pytest.mark.again
async def test_our_own_protected_server_keeps_every_rule_of_authorization() -> None:
    async with OWN["http with tokens"].opened() as target:
        report = await check_server(target, examples=2 * EXAMPLES, rules=sorted(OURS), time=600.0)
    assert problems(report) == []
    assert {"scope-challenge-is-enough", "session-of-its-user", "foreign-issuer-refused"} <= held(report)


async def test_without_tokens_no_rule_of_authorization_is_judged(autojump_clock: trio.testing.MockClock) -> None:
    async with in_memory(Twin(), "http") as target:
        report = await check_server(target, revisions=[MODERN], examples=40)
    outcomes = {outcome.rule.id: outcome for outcome in report.outcomes if outcome.rule.id in OURS}
    applying = [each for each in outcomes.values() if MODERN in each.rule.revisions]
    assert {each.status for each in applying} == {"not checkable"}
    assert all("--auth-" in each.reason or "revision" in each.reason for each in applying), applying


async def test_what_a_token_can_not_show_is_told(autojump_clock: trio.testing.MockClock) -> None:
    """Two opaque tokens: nothing can be derived from them, and only an authority makes others."""
    reasons = {}
    async with in_memory(Twin(Protected.session, web=_Opaque), "http") as target:
        preview = await preview_server(target, revisions=["2025-11-25"])
        reasons = preview.not_checkable
    assert reasons["unsigned-token-refused"] == KINDS["unsigned"]
    assert reasons["expired-token-refused"] == KINDS["expired"]
    assert reasons["foreign-audience-refused"] == KINDS["elsewhere"]
    assert "random-token-refused" not in reasons
    assert "session-of-its-user" not in reasons


class _Opaque(Protected):
    """A server that knows two opaque tokens."""

    credentials = Credentials({"a": "opaque-token-of-alice", "b": "opaque-token-of-bob"})

    def checked(self, token: str) -> dict[str, Any]:
        users = {f"opaque-token-of-{name}": name for name in ("alice", "bob")}
        return {"sub": users[token], "scope": "mcp mcp:write"}


async def test_events_are_found_from_another_session(autojump_clock: trio.testing.MockClock) -> None:
    """A server may number its events for all sessions; the second user comes with one of their own."""
    # Trio's order of tasks is random, so that the same seed finds it sooner or later; the check ends then.
    async with in_memory(Twin(Protected.session, web=ReplaysAcrossSessions), "http") as target:
        report = await check_server(
            target, revisions=["2025-11-25"], examples=600, rules=["events-of-their-user"], seed=1
        )
    assert problems(report) == [("events-of-their-user", "an event of one user was sent to another")]


# --- no leaks ---------------------------------------------------------------------------------------------------------


class Echoes(Protected):
    """A server that repeats tokens: in headers, in errors, and in what it lists."""

    def unauthorized(self, **parameters: str) -> Any:
        answer = super().unauthorized(**parameters, error_description=f"not {self.heard}")
        return type(answer)(
            answer.status, {**answer.headers, "X-Heard": self.heard}, json.dumps({"error": self.heard}).encode()
        )

    heard = ""
    everything: list[str] = []  # noqa: RUF012 - what the test looks for

    def checked(self, token: str) -> dict[str, Any]:
        type(self).heard = token
        self.everything.append(token)
        return super().checked(token)

    def is_late(self, claims: dict[str, Any], now: float) -> bool:
        return False


async def test_no_token_is_written_anywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], autojump_clock: trio.testing.MockClock
) -> None:
    async with in_memory(Twin(Protected.session, web=Echoes), "http") as target:
        report = await check_server(target, revisions=["2025-11-25"], examples=60, time=600.0, rules=sorted(OURS))
    assert [rule for rule, _ in problems(report)] == ["expired-token-refused"]
    written = [form(report) for form in FORMS.values()]
    written += [path.read_text() for path in write_plan_files(report, tmp_path)]
    for each in report.broken:
        assert each.failure is not None
        written += [repr(event) for event in each.failure.transcript]
    assert len(set(Echoes.everything)) > 5
    for secret in Echoes.everything:
        assert not any(secret in text for text in written)


def test_credentials_show_no_token() -> None:
    made = Credentials({"a": ALICE, "b": BOB})
    assert ALICE not in repr(made)
    sent = made.filled("{token a} {token unsigned} {token forged} {token nothing}").split()
    shown = made.hidden(f"{ALICE} {sent[1]} {sent[2]} {ALICE.replace('/', chr(92) + '/')}".encode()).decode()
    assert shown == "{token a} {token unsigned} {token forged} {token a}"
    assert sent[3] == "none"


def test_variants_of_a_jwt_keep_its_claims() -> None:
    made = Credentials({"a": ALICE})
    unsigned, forged = made.filled("{token unsigned}"), made.filled("{token forged}")
    head, claims, signature = unsigned.split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "=="))["alg"] == "none"
    assert (claims, signature) == (ALICE.split(".")[1], "")
    assert forged.rsplit(".", 1)[0] == ALICE.rsplit(".", 1)[0]
    assert forged != ALICE


# --- requests stay at the target --------------------------------------------------------------------------------------


class LeadsAway(Protected):
    def metadata(self) -> str:
        return "http://elsewhere.example/.well-known/oauth-protected-resource"


class Injects(Protected):
    def metadata(self) -> str:
        return "http://127.0.0.1/x HTTP/1.1"


@pytest.mark.parametrize("habit", [LeadsAway, Injects])
async def test_metadata_elsewhere_is_not_fetched(
    habit: type[Protected], autojump_clock: trio.testing.MockClock
) -> None:
    async with in_memory(Twin(Protected.session, web=habit), "http") as target:
        runner = PlanRunner(target.open_wire, MODERN)
        async with runner.connected():
            plan = (
                Ask("server/discover", headers={"Authorization": None}),
                AwaitResponses(),
                Http("GET", path="{metadata}"),
            )
            await runner.run(plan)
    paths = {str(event.facts["path"]) for event in runner.tape.events if event.kind == "request"}
    assert paths <= {"/mcp", f"{WELL_KNOWN}/mcp", WELL_KNOWN, f"{WELL_KNOWN}/no-metadata-is-named"}
    # Neither was a token sent there: metadata is asked for without one.
    aside = [event for event in runner.tape.events if event.facts.get("aside")]
    assert METADATA.endswith("/mcp")
    assert all(
        event.facts["whose"] == "" for event in aside if event.facts["path"] != f"{WELL_KNOWN}/no-metadata-is-named"
    )


# --- bad input --------------------------------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "the same token": ({"auth_a": ALICE, "auth_b": ALICE}, "of the same user"),
    "one user's tokens": ({"auth_a": ALICE, "auth_b": token(sub="alice", jti="2")}, "of the same user"),
    "no first user": ({"auth_b": BOB}, "auth_b needs auth_a"),
    "a user's token for elsewhere": ({"auth_a": ALICE, "auth_elsewhere": ALICE}, "issued for another server"),
    "expired": ({"auth_a": ALICE, "auth_elsewhere": token(exp=1)}, "auth_elsewhere has expired"),
    "too short": ({"auth_a": "short"}, "auth_a must be an access token"),
    "too long": ({"auth_a": "x" * 70_000}, "auth_a must be an access token"),
    "two lines": ({"auth_a": "first-line\nsecond-line"}, "auth_a must be an access token"),
    "empty": ({"auth_a": ""}, "auth_a must be an access token"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tokens_are_refused(name: str) -> None:
    given, said = BAD[name]
    with pytest.raises(ValueError, match=said) as raised:
        credentials_for(given, None)
    secrets = [each for each in given.values() if len(each) > 8]
    assert not any(secret in str(raised.value) for secret in secrets)


def test_a_token_of_another_type_is_not_shown() -> None:
    with pytest.raises(TypeError, match=r"^auth_a must be a string, got bytes$"):
        credentials_for({"auth_a": b"a-secret-token"}, None)  # type: ignore[dict-item]


def test_one_token_is_enough() -> None:
    made = credentials_for({"auth_a": ALICE, "auth_b": None, "auth_elsewhere": None}, None)
    assert made is not None
    assert made.names == {"a", "random", "unsigned", "forged"}
    assert credentials_for({"auth_a": None}, None) is None


def test_an_authority_makes_all_tokens_or_none() -> None:
    with pytest.raises(ValueError, match="leave out"):
        credentials_for({"auth_a": ALICE}, AuthorizationServer())
    made = credentials_for({}, AuthorizationServer())
    assert made is not None
    assert made.names == KINDS.keys()


@pytest.mark.parametrize(
    "target",
    ["ws://127.0.0.1/mcp", "tcp://127.0.0.1:1", StdioServerParameters("x"), Parameters(URL, kind="sse"), make_server()],
    ids=["ws", "tcp", "stdio", "sse", "memory"],
)
async def test_tokens_are_for_http_only(target: Any) -> None:
    with pytest.raises(ValueError, match=r"^tokens are for a server at an http: or https: URL"):
        await check_server(target, auth_a=ALICE)


async def test_one_authorization_is_enough() -> None:
    with pytest.raises(ValueError, match="have an Authorization already"):
        await check_server(HttpServerParameters(URL, headers={"authorization": "Bearer other"}), auth_a=ALICE)


@pytest.mark.parametrize(
    ("habit", "said"),
    [
        (
            "refuses",
            r"401; the target refuses the token of the first user \(invalid_token\); it asks for the scopes mcp$",
        ),
        ("short", r"status 403; the target refuses the token of the first user \(insufficient_scope\)"),
    ],
)
async def test_a_token_that_is_refused_is_one_line(
    habit: str, said: str, autojump_clock: trio.testing.MockClock
) -> None:
    class Strict(Protected):
        def checked(self, token: str) -> dict[str, Any]:
            return super().checked("x") if habit == "refuses" else {"sub": "kit-a", "scope": ""}

    async with in_memory(Twin(Protected.session, web=Strict), "http") as target:
        with pytest.raises(TransportError, match=said):
            await check_server(target, revisions=["2025-11-25"], examples=5)


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_a_second_user_who_is_refused_shows_nothing(
    revision: str, autojump_clock: trio.testing.MockClock
) -> None:
    """Else every rule for two users would hold: what is refused as invalid is refused everywhere."""

    class Alone(Protected):
        def checked(self, token: str) -> dict[str, Any]:
            claims = super().checked(token)
            if claims["sub"] == "kit-b":
                raise Invalid
            return claims

    async with in_memory(Twin(Protected.session, web=Alone), "http") as target:
        with pytest.raises(TransportError, match=r"the target refuses the token of the second user \(invalid_token\)"):
            await check_server(target, revisions=[revision], examples=5)


async def test_a_target_that_wants_a_token_is_told_apart(autojump_clock: trio.testing.MockClock) -> None:
    class Closed(Protected):
        gives_tokens = False

    async with in_memory(Twin(Protected.session, web=Closed), "http") as target:
        with pytest.raises(TransportError, match=r"401; the target wants an access token: see --auth-a \(auth_a=\)"):
            await check_server(target, revisions=["2025-11-25"], examples=5)


# --- plans ------------------------------------------------------------------------------------------------------------


async def test_a_failure_can_be_replayed_with_other_tokens(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A plan names tokens, so it shows the fault to anyone with tokens of their own."""

    class Careless(Protected):
        def is_here(self, audience: Any) -> bool:
            return True

    async with in_memory(Twin(Protected.session, web=Careless), "http") as target:
        report = await check_server(target, revisions=[MODERN], examples=20, rules=["foreign-audience-refused"])
    assert [rule for rule, _ in problems(report)] == ["foreign-audience-refused"]
    (written,) = write_plan_files(report, tmp_path)
    assert "{token elsewhere}" in written.read_text()
    async with in_memory(Twin(Protected.session, web=Careless), "http") as target:
        found = await replay_plan(target.open_wire, read_plan_file(written))
    assert found.broken.keys() == {"foreign-audience-refused"}
    async with in_memory(Twin(Protected.session, web=Protected), "http") as target:
        found = await replay_plan(target.open_wire, read_plan_file(written))
    assert found.broken == {}


def moves() -> Iterator[str]:
    yield from (name for rule in OURS for name in RULES[rule].moves)


def test_the_moves_of_authorization_need_tokens() -> None:
    assert all(any(need.startswith("token:") for need in MOVES[name].needs) for name in moves())


def test_steps_with_tokens_survive_a_file() -> None:
    plan = (Ask("ping", headers={"Authorization": "Bearer {token b}", ":path": "{endpoint?}access_token={token a}"}),)
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


def test_open_wire_for_sends_tokens_only_where_it_is_told() -> None:
    made = credentials_for({"auth_a": ALICE}, None)
    assert callable(open_wire_for(URL, credentials=made))


# --- what other rules make of it --------------------------------------------------------------------------------------

ELSEWHERE = {
    "header-mismatch-refused": Ask(
        "tools/call", {"name": WRITES, "arguments": {"uri": "memo://one"}}, headers={"Mcp-Name": "another"}
    ),
    "result-valid": Http("GET", path=f"{WELL_KNOWN}{{endpoint}}"),
    "error-object": Ask("server/discover", headers={"Authorization": None}),
    "endpoint-methods": Ask("server/discover", headers={"Authorization": "Bearer {token expired}"}),
}


@pytest.mark.parametrize("rule", ELSEWHERE)
async def test_a_refusal_of_a_token_breaks_no_other_rule(rule: str, autojump_clock: trio.testing.MockClock) -> None:
    """A 403 for a scope comes before headers are compared, and neither metadata nor an error of OAuth is a message."""

    class Wordy(Protected):
        def unauthorized(self, **parameters: str) -> Answer:
            return attrs.evolve(super().unauthorized(**parameters), body=b'{"error": "invalid_token"}')

    async with in_memory(Twin(Protected.session, web=Wordy), "http") as target:
        runner = PlanRunner(target.open_wire, MODERN)
        async with runner.connected():
            await runner.run((ELSEWHERE[rule], AwaitResponses()))
    assert first_broken(RULES[rule], runner.tape.events) is None


async def test_a_transcript_of_a_check_can_be_kept(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """What was judged is judged the same when it is read again, although no token is in the file."""

    class Forgetful(Protected):
        def described(self) -> dict[str, Any]:
            return super().described() | {"authorization_servers": []}

    async with in_memory(Twin(Protected.session, web=Forgetful), "http") as target:
        report = await check_server(target, revisions=[MODERN], examples=20, rules=["metadata-names-issuers"])
    (outcome,) = report.broken
    assert outcome.failure is not None
    write_transcript(tmp_path / "kept.jsonl", outcome.failure.transcript)
    again = read_transcript(tmp_path / "kept.jsonl")
    found = first_broken(outcome.rule, again.events)
    assert found is not None
    assert found.problem == outcome.failure.problem


def _exchanged(number: int, whose: str, tool: str) -> tuple[Event, Event]:
    """Return the events of a call that was sent with a token."""
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool}}
    facts = {"method": "POST", "path": "/mcp", "headers": [], "whose": whose}
    sent = Event("request", "client", exchange=number, facts=facts)
    return sent, Event("message", "client", exchange=number, message=message)


def _refused_for(number: int, scope: str) -> Event:
    challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
    facts = {"status": 403, "headers": [("WWW-Authenticate", challenge)]}
    return Event("response", "server", exchange=number, facts=facts)


@pytest.mark.parametrize(("late", "verdicts"), [(False, ["broken"]), (True, [])])
def test_a_challenge_is_judged_by_a_token_that_was_made_for_it(late: bool, verdicts: list[str]) -> None:
    """If the response to another request comes first, the token has the scopes that this one has named."""
    other, narrow, stepped = (
        _exchanged(*each) for each in ((1, "narrow", "read"), (2, "narrow", "write"), (3, "stepped", "write"))
    )
    refusals = [_refused_for(1, "read"), _refused_for(2, "write")]
    opened = Event("open", "client", facts={"transport": "http", "url": "http://127.0.0.1/mcp"})
    order = reversed(refusals) if late else refusals
    events = [opened, *other, *narrow, *order, *stepped, _refused_for(3, "write")]
    found = [*RULES["scope-challenge-is-enough"].judge(History(events))]
    assert ["held" if each.problem is None else "broken" for each in found] == verdicts
