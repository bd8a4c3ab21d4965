"""Clients that sign in, against protected servers: the rules for authorization, and clients that break them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

import h11
import pytest
import trio
from hypothesis import given, strategies as st

from tests import forks
from tests.kit.mutants.sign_in import SIGN_INS, Program, run
from tests.kit.test_mutants import found
from trio_mcp import Client, TransportError
from trio_mcp._secrets import MASK
from trio_mcp.conformance.clients import StreamClient, check_client, preview_client
from trio_mcp.conformance.outcomes import CheckReport
from trio_mcp.conformance.report import FORMS
from trio_mcp.conformance.rules.catalogue import RULES, judge
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import Rule, Verdict, held
from trio_mcp.conformance.serving.gate import ScriptedGate
from trio_mcp.conformance.serving.protection import CHOICES, TRAPS, ProtectionScript, protections
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.transcript.files import as_line
from trio_mcp.conformance.transcript.masking import Masker
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.types.versions import LATEST_LEGACY, LATEST_MODERN, REVISIONS

OURS = [rule for rule in RULES.values() if rule.who == "client" and rule.section.startswith("basic/authorization")]
ALL = 1 + len(TRAPS) + max(map(len, CHOICES.values())) - 1
"""How many examples have every trap, and every value of the choices."""


class Watching:
    """A rule that holds on every example, and keeps the events of all."""

    def __init__(self) -> None:
        self.seen: list[Sequence[Event]] = []
        self.rule = Rule("watching", "MUST", "Watch.", "", "", REVISIONS, "client", (), self.judge)

    def judge(self, history: History) -> Iterator[Verdict]:
        self.seen.append(history.events)
        yield held(history.events[0])


async def check(habit: type[Program], examples: int, *rules: Rule, **options: Any) -> CheckReport:
    """Check a program, by the rules for authorization and these."""
    settings: dict[str, Any] = {"examples": examples, "time": 600.0, "rules": [*OURS, *rules], "protected": True}
    return await check_client(partial(run, habit), **settings | options)


def few(names: Iterable[str]) -> Iterator[Any]:
    """Yield some names as they are, some more for ``-m again``, and the rest for ``-m long``."""
    for at, name in enumerate(names):
        marks = [] if at % 24 == 0 else [pytest.mark.again if at % 8 == 0 else pytest.mark.long]
        yield pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [*few(SIGN_INS)])
async def test_a_fault_in_signing_in_is_found_by_its_rule(name: str) -> None:
    mutant = SIGN_INS[name]
    report = await check(mutant.habit, ALL, revisions=[LATEST_MODERN])
    found(report, mutant.rule, mutant.also)


@pytest.mark.parametrize("examples", [ALL, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("revision", [LATEST_LEGACY, LATEST_MODERN])
async def test_our_client_signs_in_by_the_rules(revision: str, examples: int) -> None:
    """Each rule of the revision has an occasion, within few examples."""
    report = await check(Program, examples, revisions=[revision])
    assert [(outcome.rule.id, outcome.failure) for outcome in report.broken] == []
    assert (report.ended, report.examples, report.notes) == ("complete", examples, ())
    # A client that tries the modern era first is held to it where it gets no answer.
    judged = {outcome.rule.id for outcome in report.outcomes if outcome.status == "held"}
    assert judged >= {rule.id for rule in OURS if revision in rule.revisions}


@pytest.mark.again
async def test_a_command_signs_in() -> None:
    """It gets the URL as its last argument, as always."""
    command = forks.command("tests.kit.sign_in_program", "tests.kit.sign_in_program", *forks.LOADED)
    report = await check_client(command, examples=8, protected=True)
    assert [(outcome.rule.id, outcome.failure) for outcome in report.broken] == []
    assert sum(outcome.status == "held" for outcome in report.outcomes) > 40


# --- secrets ----------------------------------------------------------------------------------------------------------


def secrets_in(events: Sequence[Event]) -> Iterator[str]:
    """Yield all tokens, codes and verifiers that events have."""
    for event in events:
        facts = {name: event.facts.get(name) or {} for name in ("sent_form", "answer", "redirected_with")}
        for name in ("access_token", "refresh_token", "code", "code_verifier", "client_secret"):
            yield from (str(each[name]) for each in facts.values() if name in each)
        yield event.headers.get("authorization", "").partition(" ")[2]


async def test_no_secret_is_written() -> None:
    """Neither to a transcript, nor to a report; and what is masked breaks no rule for that."""
    watching = Watching()
    await check(Program, ALL, watching.rule)
    secrets = {each for events in watching.seen for each in secrets_in(events)} - {""}
    assert len(secrets) > 50
    for events in watching.seen:
        masker = Masker()
        masked = [masker.event(event) for event in events]
        written = json.dumps([as_line(event) for event in masked])
        assert MASK in written
        assert not [secret for secret in secrets if secret in written]
        assert not [verdict for _, verdict in judge(History(masked), OURS) if verdict.problem]


async def test_no_secret_is_reported() -> None:
    watching = Watching()
    mutant = SIGN_INS["keeps the first refresh token"]
    report = await check(mutant.habit, ALL, watching.rule, revisions=[LATEST_MODERN])
    secrets = {each for events in watching.seen for each in secrets_in(events)} - {""}
    assert report.broken
    for form in FORMS.values():
        written = form(report)
        assert not [secret for secret in secrets if secret in written]


# --- clients that don't sign in ---------------------------------------------------------------------------------------


async def gives_up(url: str) -> None:
    async with Client(url):
        pass


async def stays_away(server: Any) -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("client", "says"),
    [
        (stays_away, "did not connect: it ended without an error"),
        (gives_up, r"did not sign in: its last request was to server, and got status 401; it raised HttpError"),
    ],
)
async def test_a_client_that_does_not_sign_in_is_an_error(client: Callable[[str], Awaitable[None]], says: str) -> None:
    """One line, which says how far it came."""
    with pytest.raises(TransportError, match=says):
        await check_client(client, protected=True, rules=["token-*"])


async def test_a_client_that_ignores_a_401_breaks_a_rule() -> None:
    report = await check_client(gives_up, protected=True, examples=3)
    assert [outcome.rule.id for outcome in report.broken] == ["challenge-understood"]


async def test_a_client_that_waits_forever_is_ended() -> None:
    class Waits(Program):
        async def show(self, url: str) -> str:
            await trio.sleep_forever()
            raise AssertionError

    with pytest.raises(TransportError, match=r"got status 201; it did not end within 0\.5 seconds"):
        await check(Waits, 3, patience=0.5)


async def test_a_client_that_tries_forever_is_ended() -> None:
    """It gets no more than some hundred refusals."""

    class Insists(Program):
        async def again(self, attempt: Any, signer: Any, status: int, headers: Any) -> bool:
            return True

    report = await check_client(partial(run, Insists), protected=True, examples=2, rules=["token-*", "challenge-*"])
    assert report.notes == ("in 2 of 2 examples it sent more than 500 messages",)
    assert report.ended == "target hangs"


async def test_a_stop_ends_a_sign_in() -> None:
    """A check that is cancelled leaves nothing behind, either."""
    stop = trio.Event()

    class Stops(Program):
        async def show(self, url: str) -> str:
            stop.set()
            await trio.sleep_forever()
            raise AssertionError

    report = await check(Stops, 3, stop=stop)
    assert (report.ended, report.examples) == ("interrupted", 0)
    with trio.move_on_after(0.3) as scope:
        await check(Program, 10_000)
    assert scope.cancelled_caught


# --- the servers ------------------------------------------------------------------------------------------------------


def test_few_examples_have_everything() -> None:
    first = [*itertools.islice(protections(3, LATEST_MODERN), ALL)]
    assert first[0] == ProtectionScript()
    assert {each.trap for each in first} == {"", *TRAPS}
    for name, values in CHOICES.items():
        assert {getattr(each, name) for each in first} == values.keys()
    assert [each.trap for each in first if each.trap] == [*TRAPS]
    assert all(each in (ProtectionScript(), ProtectionScript(trap=each.trap)) for each in first if each.trap)


def test_the_same_seed_gives_the_same_servers() -> None:
    first, second, other = ([*itertools.islice(protections(seed, LATEST_MODERN), 60)] for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_a_simpler_protection_is_plainer() -> None:
    """Whatever is taken from it, shrinking comes to an end."""

    def size(protection: ProtectionScript) -> int:
        return sum(getattr(protection, name) != getattr(ProtectionScript(), name) for name in (*CHOICES, "trap"))

    for protection in itertools.islice(protections(1, LATEST_LEGACY), 60):
        assert all(size(each) < size(protection) for each in protection.simpler())


async def test_a_preview_names_the_ways() -> None:
    preview = await preview_client(["./nonesuch"], protected=True, rules=["pkce-*"])
    assert {rule.id for rule in preview.rules} == {"pkce-used", "pkce-s256", "pkce-support-checked"}
    ways = preview.moves[LATEST_MODERN]
    assert {"metadata: root", "tokens: rotating", "trap: wrong iss"} <= {*ways}


async def test_a_client_on_a_stream_can_not_sign_in() -> None:
    """It has no URL, from which all else would follow."""
    with pytest.raises(ValueError, match="a StreamClient can't sign in"):
        await check_client(StreamClient(stays_away), protected=True)


async def test_an_unprotected_check_says_what_it_left_out() -> None:
    async def client(target: Any) -> None:
        async with Client(target):
            pass

    report = await check_client(client, examples=1, rules=["pkce-used"])
    assert [(outcome.status, outcome.reason) for outcome in report.outcomes] == [
        ("not exercised", "no server made the client sign in (protected)")
    ]


# --- hostile clients --------------------------------------------------------------------------------------------------

NAMES = (
    *(
        "client_id",
        "redirect_uri",
        "redirect_uris",
        "scope",
        "resource",
        "state",
        "code",
        "code_challenge",
        "code_verifier",
    ),
    *(
        "grant_type",
        "refresh_token",
        "grant_types",
        "response_type",
        "response_types",
        "application_type",
        "jwks",
        "token",
    ),
    *("token_endpoint_auth_method", "client_name", "client_secret", "code_challenge_method"),
)
ODD_TEXTS = st.sampled_from(["", "[", "http://[", "\r\nX: y", "é", "\x00", "a" * 300, "[" * 100_000, "%", "\ud800"])
ODD_VALUES = st.recursive(
    st.none() | st.integers() | ODD_TEXTS, lambda each: st.lists(each) | st.dictionaries(st.sampled_from(NAMES), each)
)


@given(
    path=st.sampled_from(
        ["/mcp", "/register", "/authorize", "/token", "/revoke", "/.well-known/x", "[", "/tenant/token"]
    ),
    query=st.dictionaries(st.sampled_from(NAMES), ODD_TEXTS, max_size=4),
    body=st.dictionaries(st.sampled_from(NAMES), ODD_VALUES, max_size=4) | ODD_TEXTS,
    kind=st.sampled_from(["application/json", "application/x-www-form-urlencoded", "", "é"]),
    host=st.sampled_from(["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3", "http://127.0.0.1:4"]),
    protection=st.builds(ProtectionScript, trap=st.sampled_from(["", *TRAPS])),
)
async def test_a_gate_outlives_any_client(
    path: str, query: dict[str, str], body: Any, kind: str, host: str, protection: ProtectionScript
) -> None:
    """Whatever it sends, there is a response that can be sent, and a mark that the rules can read."""
    tape = Tape()
    gate = ScriptedGate(protection, tape, "http://127.0.0.1:1/mcp", "http://127.0.0.1:2", "http://127.0.0.1:3")
    url = f"{host}{path}?{urlencode(query, errors='replace')}"
    sent = json.dumps(body) if kind == "application/json" else urlencode({"state": body}, errors="replace")
    for method in ("GET", "POST", "POST"):
        headers = {"content-type": kind, "authorization": "Basic Og=="}
        found = gate.handle(method, url, headers, sent.encode("utf-8", "replace"), 0)
        if found is not None:
            h11.Response(status_code=found.status, headers=[*found.headers.as_dict().items()])
    for _ in judge(History(tape.events), OURS):
        pass
