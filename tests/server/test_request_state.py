"""requestState: signed, bound to its request, principal and time (2026-07-28 `basic/patterns/mrtr`)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from trio_mcp import Principal
from trio_mcp.server.input.request_state import MAX_STATE, Answer, Question, RequestState, StateRefused, StateSealer
from trio_mcp.testing.strategies import json_values

KEY = bytes(range(32))
PARAMS = {"name": "tool", "arguments": {"a": [1, 2.5, None, "é"]}}
ANN = Principal("ann", "https://id.example.com", "app", {"read"})
STATE = RequestState(
    round=2,
    questions={"two": Question("elicitation/create", "d2")},
    answers={"one": Answer(Question("roots/list", "d1"), {"roots": []})},
    memory={"id": "x"},
    state=[1, None],
    parked="p",
)


@attrs.define
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def sealer(**options: Any) -> StateSealer:
    return StateSealer("server", options.pop("keys", KEY), options.pop("clock", Clock()))


def sealed(state: RequestState = STATE, **options: Any) -> str:
    return sealer(**options).seal(state, "tools/call", PARAMS, ANN, 600)


questions = st.builds(Question, st.sampled_from(["elicitation/create", "roots/list"]), st.text(max_size=8))
states = st.builds(
    RequestState,
    round=st.integers(0, 99),
    questions=st.dictionaries(st.text(), questions, max_size=3),
    answers=st.dictionaries(st.text(), st.builds(Answer, questions, json_values()), max_size=3),
    memory=st.dictionaries(st.text(), json_values(), max_size=3),
    state=json_values(),
    parked=st.none() | st.text(),
)


@given(states)
def test_a_sealed_state_can_be_opened(state: RequestState) -> None:
    token = sealer().seal(state, "tools/call", PARAMS, None, 1)
    assert sealer().open(token, "tools/call", PARAMS, None) == state


def test_parameters_that_the_retry_adds_are_not_bound() -> None:
    token = sealed()
    retry = {**PARAMS, "_meta": {"x": 1}, "inputResponses": {}, "requestState": token}
    assert sealer().open(token, "tools/call", retry, ANN) == STATE


@pytest.mark.parametrize(
    "other",
    [
        ("prompts/get", PARAMS, ANN),
        ("tools/call", {**PARAMS, "name": "other"}, ANN),
        ("tools/call", {**PARAMS, "arguments": {}}, ANN),
        ("tools/call", {**PARAMS, "more": 1}, ANN),
        *(("tools/call", PARAMS, attrs.evolve(ANN, **{each: "other"})) for each in ("subject", "issuer", "client_id")),
        ("tools/call", PARAMS, None),
    ],
)
def test_the_state_of_a_different_request_or_principal_is_refused(other: Any) -> None:
    with pytest.raises(StateRefused, match="not valid"):
        sealer().open(sealed(), *other)


def test_a_principal_that_was_granted_other_scopes_is_the_same() -> None:
    assert sealer().open(sealed(), "tools/call", PARAMS, attrs.evolve(ANN, scopes={"write"})) == STATE


def test_a_server_with_a_different_name_or_key_refuses_the_state() -> None:
    for other in (StateSealer("other", KEY), StateSealer("server"), StateSealer("server", bytes(32))):
        with pytest.raises(StateRefused, match="not valid"):
            other.open(sealed(), "tools/call", PARAMS, ANN)


def test_an_expired_state_is_refused() -> None:
    clock = Clock()
    token = sealed(clock=clock)
    clock.now += 600
    assert sealer(clock=clock).open(token, "tools/call", PARAMS, ANN) == STATE
    clock.now += 1
    with pytest.raises(StateRefused, match="expired"):
        sealer(clock=clock).open(token, "tools/call", PARAMS, ANN)


def test_keys_can_be_rotated() -> None:
    """The first key seals, any key opens."""
    new = b"n" * 32
    for keys in ([KEY, new], [new, KEY]):
        assert sealer(keys=keys).open(sealed(), "tools/call", PARAMS, ANN) == STATE
    with pytest.raises(StateRefused):
        sealer(keys=KEY).open(sealed(keys=[new, KEY]), "tools/call", PARAMS, ANN)


@pytest.mark.parametrize(
    ("keys", "error", "text"),
    [
        (b"short", ValueError, "got 5"),
        ([KEY, b"x" * 31], ValueError, "got 31"),
        ([], ValueError, "must not be empty"),
        ("x" * 32, TypeError, "got str"),
        (["x" * 32], TypeError, "each key must be bytes, got str"),
        (7, TypeError, "got int"),
    ],
)
def test_a_bad_key_is_refused(keys: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        StateSealer("server", keys)


def refused(token: object) -> None:
    with pytest.raises(StateRefused, match="not valid") as caught:
        sealer().open(token, "tools/call", PARAMS, ANN)
    assert str(caught.value).count("requestState") == 1


TOKEN = sealed()


@given(st.integers(0, len(TOKEN) * 7 - 1))
def test_a_flipped_bit_is_refused(bit: int) -> None:
    position, shift = divmod(bit, 7)
    refused(TOKEN[:position] + chr(ord(TOKEN[position]) ^ 1 << shift) + TOKEN[position + 1 :])


@given(st.integers(0, len(TOKEN) - 1), st.text(max_size=20))
def test_a_truncated_or_continued_token_is_refused(length: int, more: str) -> None:
    refused(TOKEN[:length])
    if more:
        refused(TOKEN + more)


@given(st.integers(1, len(TOKEN) - 1), states)
def test_a_splice_of_two_tokens_is_refused(cut: int, other: RequestState) -> None:
    second = sealer().seal(other, "tools/call", PARAMS, ANN, 600)
    for token in (TOKEN[:cut] + second[cut:], second[:cut] + TOKEN[cut:]):
        if token not in (TOKEN, second):
            refused(token)


@given(st.sampled_from(["+", "=", "==", "\n", " ", "."]), st.integers(0, 2))
def test_a_non_canonical_encoding_is_refused(junk: str, part: int) -> None:
    parts = TOKEN.split(".")
    parts[part] += junk
    refused(".".join(parts))


@given(json_values())
def test_a_malformed_token_is_refused(value: Any) -> None:
    refused(value)


def test_the_size_is_bounded() -> None:
    with pytest.raises(ValueError, match=str(MAX_STATE)):
        sealed(RequestState(state="x" * MAX_STATE))
    refused(TOKEN + "x" * MAX_STATE)
