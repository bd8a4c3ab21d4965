"""Files of transcripts: what is written is read again, what is malformed is named, and no secret is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel

from tests.effort import examples
from trio_mcp import types
from trio_mcp._secrets import is_secret
from trio_mcp.conformance.transcript import masking
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.transcript.files import (
    TranscriptError,
    as_line,
    kind_of_file,
    read_transcript,
    write_transcript,
)
from trio_mcp.conformance.transcript.masking import Masker

FIRST = '{"trio-mcp": "transcript", "version": 1}\n'

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
places = {"connection": st.integers(0, 3), "time": st.integers(0, 10**9).map(lambda us: us / 10**6)}
events = st.one_of(
    st.builds(Event, st.just("message"), st.sampled_from(["client", "server"]), message=json_values, **places),
    st.builds(
        Event, st.just("text"), st.just("server"), text=st.binary(), exchange=st.none() | st.integers(0), **places
    ),
    st.builds(
        Event,
        st.just("response"),
        st.just("server"),
        facts=st.fixed_dictionaries(
            {"status": st.integers(100, 599), "headers": st.lists(st.lists(st.text(), min_size=2, max_size=2))}
        ),
        **places,
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("transcripts")


@given(written=st.lists(events))
@settings(max_examples=examples(100))
def test_what_was_written_is_read_again(folder: Path, written: list[Event]) -> None:
    write_transcript(folder / "some.jsonl", written, target="shop.py")
    found = read_transcript(folder / "some.jsonl")
    masker = Masker()
    assert list(found.events) == [masker.event(event) for event in written]
    assert found.about == {"target": "shop.py"}
    assert kind_of_file(folder / "some.jsonl") == "transcript"


def _event(**members: Any) -> str:
    return FIRST + json.dumps({"time": 0, "sender": "client", "kind": "message"} | members)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "neither a transcript nor a plan"),
        ("[1]\n", "neither a transcript nor a plan"),
        ("\xff\x00", "neither a transcript nor a plan"),
        ('{"trio-mcp": "transcript", "version": 2}\n', "written by a different version"),
        ('{"trio-mcp": "plan", "version": 1}\n', "this is not a transcript"),
        (FIRST + "\n{", "line 3: malformed JSON"),
        (FIRST + "[" * 100_000, "line 2: nested too deeply"),
        (FIRST + "1", "line 2: must be a JSON object"),
        (FIRST + "{}", "'time' is missing"),
        (_event(time=True), "'time' must be a number of seconds"),
        (_event(sender=[]), "'sender' must be one of client, kit, server"),
        (_event(kind="other"), "'kind' must be one of"),
        (_event(connection=-1), "'connection' must be an integer from 0 up"),
        (_event(text=1), "'text' must be a string"),
        (_event(base64="="), "'base64' must be Base64"),
        (_event(facts=[]), "'facts' must be an object"),
        (_event(more=1), "unknown member 'more'"),
        (_event(kind="request"), "the fact 'method' must be a string"),
        (_event(kind="response", facts={"status": "200"}), "the fact 'status' must be a number"),
        (_event(kind="response", facts={"status": 200, "headers": [["a"]]}), "must be a list of pairs of strings"),
        (_event(kind="mark"), "the fact 'what' must be a string"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(TranscriptError, match=problem):
        read_transcript(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TranscriptError, match=r"can't read .*none\.jsonl: No such file"):
        read_transcript(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ({"password": "x", "user": "me"}, {"password": "***", "user": "me"}),
        ({"pin": 1234, "pinned": 5, "token": None}, {"pin": 0, "pinned": 5, "token": None}),
        # A schema that describes a secret is not one.
        ({"token": {"type": "string"}, "required": ["token"]}, {"token": {"type": "string"}, "required": ["token"]}),
        ({"progressToken": "p", "maxTokens": 9}, {"progressToken": "p", "maxTokens": 9}),
        ({"tokens": 512, "max_tokens": 9, "otp": 123456}, {"tokens": 512, "max_tokens": 9, "otp": 0}),
        ({"api_keys": ["a", "b"]}, {"api_keys": ["***", "***"]}),
        # All that stands below the name of a secret, at any depth.
        (
            {"credentials": {"user": "me", "keys": [{"id": 7, "hex": "f00"}], "old": False, "next": None}},
            {"credentials": {"user": "***", "keys": [{"id": 0, "hex": "***"}], "old": False, "next": None}},
        ),
        # The description of a secret in a schema can be read, but no value of it.
        (
            {
                "properties": {
                    "token": {"title": "Token", "default": "abc", "minLength": 3},
                    "sort": {"default": "name"},
                }
            },
            {
                "properties": {
                    "token": {"title": "Token", "default": "***", "minLength": 3},
                    "sort": {"default": "name"},
                }
            },
        ),
        (
            {"auth": {"type": "object", "properties": {"user": {"type": "string"}}, "examples": [{"user": "me"}]}},
            {"auth": {"type": "object", "properties": {"user": {"type": "string"}}, "examples": [{"user": "***"}]}},
        ),
        ({"credentials": {"type": "object", "key": "abc"}}, {"credentials": {"type": "object", "key": "***"}}),
        ({"credentials": {"type": "service_account", "id": "x"}}, {"credentials": {"type": "***", "id": "***"}}),
        (
            {"credentials": {"title": "x"}, "token": {"type": [{}]}},
            {"credentials": {"title": "***"}, "token": {"type": [{}]}},
        ),
        # A pair: one member has the name of what the other one holds.
        (
            [{"name": "API_TOKEN", "value": "abc"}, {"name": "PORT", "value": "80"}],
            [{"name": "API_TOKEN", "value": "***"}, {"name": "PORT", "value": "80"}],
        ),
        ({"Key": "password", "Value": {"a": "b"}}, {"Key": "password", "Value": {"a": "***"}}),
        ({"key": "monkey", "code": 5, "value": "x"}, {"key": "monkey", "code": 5, "value": "x"}),
        ({"headers": [{"name": "X-Maps-Key", "value": "abc"}]}, {"headers": [{"name": "X-Maps-Key", "value": "***"}]}),
        ({"env": {"MAPS_KEY": "abc", "MAPS_SORT_KEY": "a"}}, {"env": {"MAPS_KEY": "***", "MAPS_SORT_KEY": "a"}}),
        ({"args": ["-v", "--token", "abc", "x=1"]}, {"args": ["-v", "--token", "***", "x=1"]}),
        (
            {"kind": "Secret", "data": {"a": "YWJj"}, "metadata": {"name": "x"}},
            {"kind": "Secret", "data": {"a": "***"}, "metadata": {"name": "x"}},
        ),
        ({"content": [{"text": '{"password": "x"}'}]}, {"content": [{"text": '{"password": "***"}'}]}),
        (
            {"headers": [["Cookie", "a=b"], ["DPoP", "a proof"], ["Mcp-Session-Id", "f00"], ["Accept", "*/*"]]},
            {"headers": [["Cookie", "***"], ["DPoP", "***"], ["Mcp-Session-Id", "session-1"], ["Accept", "*/*"]]},
        ),
    ],
)
def test_what_stands_under_the_name_of_a_secret_is_masked(value: Any, masked: Any) -> None:
    assert Masker().value(value) == masked


def test_what_the_protocol_names_can_be_read() -> None:
    """What tokens and ids there are in messages are for one conversation, or for pages."""
    public = [getattr(types, name) for name in types.__all__]
    models = [each for each in public if isinstance(each, type) and issubclass(each, BaseModel)]
    named = {field.alias or name for model in models for name, field in model.model_fields.items()}
    assert "progressToken" in named
    assert [name for name in named if is_secret(name)] == []


@pytest.mark.parametrize("around", ["token", "items"])
def test_a_value_that_is_too_deep_is_masked_as_a_whole(around: str) -> None:
    value: Any = "deep"
    for _ in range(900):
        value = {around: [value]}
    masked = Masker().value(value)
    for _ in range(masking.MAX_DEPTH // 2):
        [masked] = masked[around]
    assert masked == {around: "***"}


def test_sessions_can_be_told_apart() -> None:
    masker = Masker()
    names = [masker.value({"sessionId": each})["sessionId"] for each in ("one", "two", "one")]
    assert names == ["session-1", "session-2", "session-1"]


def test_a_masker_tells_a_bounded_number_of_sessions_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "MAX_SESSIONS", 2)
    masker = Masker()
    names = [masker.value(each, "Mcp-Session-Id") for each in ("a", "b", "c", "b", "a")]
    assert names == ["session-1", "session-2", "session-3", "session-2", "session-4"]


def test_only_what_was_masked_says_so() -> None:
    plain = Event("message", "client", message={"id": 1})
    secret = Event("message", "client", message={"password": "x"})
    assert Masker().event(plain) is plain
    assert as_line(Masker().event(secret))["facts"] == {"masked": True}
