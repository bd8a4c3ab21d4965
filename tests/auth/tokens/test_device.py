"""The device grant: what is shown, and how long and how often is asked."""

from __future__ import annotations

import contextlib
from typing import Any

import attrs
import pytest

from tests.auth.tokens.flows import AT, GRANTED, ISSUER, answer, drive, error, form
from trio_mcp.auth.rules.device import device
from trio_mcp.auth.rules.login import ClientRecord
from trio_mcp.auth.rules.steps import Fetch, ShowCode, Wait
from trio_mcp.errors import AuthorizationError

CODES = {
    "device_code": "device-1",
    "user_code": "WDJB-MJHT",
    "verification_uri": "https://id.example.com/device",
    "expires_in": 30,
    "interval": 5,
}
PENDING, SLOW = error("authorization_pending"), error("slow_down")
LOST = AuthorizationError("device", "the connection was lost")


def run(*answers: object, changes: dict[str, Any] | None = None, at: Any = AT) -> tuple[Any, list[Any]]:
    body = {name: value for name, value in (CODES | (changes or {})).items() if value is not ...}
    flow = device(at, endpoint=f"{ISSUER}/device", scopes={"write", "read"}, resource="https://mcp.example.com")
    return drive(flow, answer(body), None, *answers)


def polled(*answers: object) -> list[object]:
    """Return what is sent to a flow that waits before each answer."""
    return [sent for each in answers for sent in (None, each)]


def test_a_person_enters_the_code() -> None:
    granted, steps = run(*polled(PENDING, answer(GRANTED)))
    assert granted.access_token == "token-1"
    ask, show, wait, poll, *_ = steps
    assert (ask.url, form(ask)) == (
        f"{ISSUER}/device",
        {"client_id": "me", "scope": "read write", "resource": "https://mcp.example.com"},
    )
    assert show == ShowCode("https://id.example.com/device", "WDJB-MJHT", None, 30)
    assert wait == Wait(5)
    assert (poll.url, form(poll)) == (AT.url, {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": "device-1",
        "resource": "https://mcp.example.com",
        "client_id": "me",
    })  # fmt: skip


def test_a_client_with_basic_authentication_names_itself_too() -> None:
    at = attrs.evolve(AT, client=ClientRecord("me", "given", "s", "client_secret_basic"))
    _, [ask, _, _, poll] = run(*polled(answer()), at=at)
    assert form(ask)["client_id"] == "me"
    assert "client_id" not in form(poll)
    assert all("Authorization" in step.fields for step in (ask, poll))


@pytest.mark.parametrize(("answers", "waits"), [
    ([PENDING, PENDING, answer()], [5, 5, 5]),
    ([SLOW, PENDING, answer()], [5, 10, 10]),
    ([SLOW, SLOW], [5, 10, 15]),
    ([LOST, error("server_error", 503), answer(b"", 429)], [5, 10, 15]),
    ([PENDING] * 6, [5] * 6),
])  # fmt: skip
def test_how_long_is_waited(answers: list[object], waits: list[float]) -> None:
    steps: list[Any] = []
    flow = device(AT, endpoint=f"{ISSUER}/device")
    given = iter([answer(CODES), None, *polled(*answers)])
    next(flow)
    with contextlib.suppress(StopIteration, AuthorizationError):
        for sent in given:
            steps.append(flow.throw(sent) if isinstance(sent, BaseException) else flow.send(sent))
    assert next(given, None) is None, "the flow ended too early"
    assert [step.seconds for step in steps if isinstance(step, Wait)] == waits


@pytest.mark.parametrize(("answers", "code"), [
    ([PENDING, error("access_denied")], "access_denied"),
    ([error("expired_token")], "expired_token"),
    ([error("invalid_grant")], "invalid_grant"),
    ([error("unauthorized_client")], "unauthorized_client"),
    ([PENDING] * 6, None),
])  # fmt: skip
def test_what_ends_the_waiting(answers: list[object], code: str | None) -> None:
    with pytest.raises(AuthorizationError, match=r"^device at") as caught:
        run(*polled(*answers))
    assert caught.value.error == code


def test_a_server_that_never_answers_is_given_up() -> None:
    with pytest.raises(AuthorizationError, match="the connection was lost"):
        run(*polled(*[LOST] * 6), changes={"expires_in": 1800})


@pytest.mark.parametrize(("changes", "expires", "interval"), [
    ({"expires_in": ..., "interval": ...}, 600, 5),
    ({"expires_in": -1, "interval": -1}, 600, 5),
    ({"expires_in": 10**9, "interval": 10**9}, 1800, 60),
    ({"expires_in": "90", "interval": "2"}, 90, 2),
    ({"interval": 0.001}, 30, 1),
    ({"interval": 0}, 30, 5),
])  # fmt: skip
def test_times_are_bounded(changes: dict[str, Any], expires: float, interval: float) -> None:
    _, [_, show, wait, _] = run(*polled(answer()), changes=changes)
    assert (show.expires_in, wait.seconds) == (expires, interval)


@pytest.mark.parametrize(("changes", "shown"), [
    ({"verification_uri_complete": "https://id.example.com/device?c=1"}, "https://id.example.com/device?c=1"),
    ({"verification_uri_complete": "javascript:alert(1)"}, None),
    ({"verification_uri_complete": 7}, None),
    ({"verification_uri": ..., "verification_url": "https://id.example.com/device"}, None),
])  # fmt: skip
def test_a_url_with_the_code_in_it(changes: dict[str, Any], shown: str | None) -> None:
    _, [_, show, *_] = run(*polled(answer()), changes=changes)
    assert (show.url, show.complete_url) == ("https://id.example.com/device", shown)


@pytest.mark.parametrize("changes", [
    {"device_code": ...}, {"device_code": ""}, {"device_code": 5},
    {"user_code": ...}, {"user_code": ""}, {"user_code": "a\x1b[2J"}, {"user_code": "a\nb"}, {"user_code": "A" * 65},
    {"verification_uri": ...}, {"verification_uri": "file:///etc/passwd"}, {"verification_uri": "javascript:alert(1)"},
    {"verification_uri": "https://id.example.com/\x1b[2J"}, {"verification_uri": ["https://id.example.com"]},
])  # fmt: skip
def test_what_cant_be_shown_is_refused(changes: dict[str, Any]) -> None:
    body = {name: value for name, value in (CODES | changes).items() if value is not ...}
    with pytest.raises(AuthorizationError, match=r"^device at .* the server's response (has no|lacks a) "):
        drive(device(AT, endpoint=f"{ISSUER}/device"), answer(body))


def test_a_refusal_at_once() -> None:
    with pytest.raises(AuthorizationError, match=r"^device at .*\(invalid_scope\); ask for scopes"):
        drive(device(AT, endpoint=f"{ISSUER}/device"), error("invalid_scope"))
    _, [ask, *_] = drive(device(AT, endpoint=f"{ISSUER}/device"), answer(CODES), None, *polled(answer()))
    assert isinstance(ask, Fetch)
    assert form(ask) == {"client_id": "me"}
