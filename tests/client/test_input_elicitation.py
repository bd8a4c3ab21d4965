"""A server asks the user something (`client/elicitation`): the same rules in both eras."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from tests.client.asking import MODERN, answered, form, url
from tests.form_strategies import conforming_answers, forms, spoiled_answers
from trio_mcp import Answers, InputError, RemoteProtocolError, types
from trio_mcp.client.answers.sources import InputSources
from trio_mcp.jsonrpc.messages import ErrorData

NAME = form(("name",), name={"type": "string"}, age={"type": "integer", "minimum": 0, "default": 30})


async def ask(era: str, params: Any, callback: Callable[[Any], Any], **more: Any) -> Any:
    return await answered(era, "elicitation/create", params, Answers(elicitation=callback, **more))


class Person(BaseModel):
    name: str
    age: int | None = None


class Dated(BaseModel):
    day: datetime.date = Field(alias="theDay")


async def later(answer: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return answer


@pytest.mark.parametrize("era", ["2025-06-18", "2025-11-25", MODERN])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"name": "Ada", "age": 36}, {"action": "accept", "content": {"name": "Ada", "age": 36}}),
        ({"name": "Ada"}, {"action": "accept", "content": {"age": 30, "name": "Ada"}}),
        (Person(name="Ada"), {"action": "accept", "content": {"age": 30, "name": "Ada"}}),
        (
            types.ElicitResult(action="accept", content={"name": "Ada", "age": 1}),
            {"action": "accept", "content": {"name": "Ada", "age": 1}},
        ),
        (types.ElicitResult(action="decline", content={"name": "secret"}), {"action": "decline"}),
        (None, {"action": "decline"}),
        ("decline", {"action": "decline"}),
        ("cancel", {"action": "cancel"}),
        (types.ElicitResult(action="cancel"), {"action": "cancel"}),
    ],
)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_what_a_callback_may_return(era: str, answer: Any, expected: Any, kind: str) -> None:
    seen: list[Any] = []

    def callback(params: Any) -> Any:
        seen.append(params)
        return answer if kind == "sync" else later(answer)

    assert await ask(era, NAME, callback) == expected
    (params,) = seen
    assert isinstance(params, types.ElicitRequestFormParams)
    assert params.message == "Please fill in"
    assert list(params.requested_schema.properties) == ["name", "age"]


async def test_an_answer_is_anything_that_has_a_json_form() -> None:
    asked = form(("theDay",), theDay={"type": "string", "format": "date"})
    expected = {"action": "accept", "content": {"theDay": "2026-07-28"}}
    day = datetime.date(2026, 7, 28)
    assert await ask(MODERN, asked, lambda _: {"theDay": day}) == expected
    assert await ask(MODERN, asked, lambda _: Dated(theDay=day)) == expected


async def test_accepting_with_a_word_takes_the_defaults() -> None:
    asked = form(("ok",), ok={"type": "boolean", "default": True})
    assert await ask(MODERN, asked, lambda _: "accept") == {"action": "accept", "content": {"ok": True}}


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
@pytest.mark.parametrize("answer", ["accept", {}, types.ElicitResult(action="accept")])
async def test_a_url(era: str, answer: Any) -> None:
    """The input on the page does not pass through the client, so there is no content (section Response Actions)."""
    seen: list[Any] = []

    def callback(params: Any) -> Any:
        seen.append(params)
        return answer

    params = url("https://example.org/pay?x=1", **({"elicitationId": "e1"} if era != MODERN else {}))
    assert await ask(era, params, callback) == {"action": "accept"}
    assert isinstance(seen[0], types.ElicitRequestURLParams)
    assert seen[0].url == "https://example.org/pay?x=1"


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        ({"name": 5}, r"ValueError: the answer does not match the requested schema: \['name'\]: 5 is not of type"),
        ({"name": "Ada", "age": -1}, r"\['age'\]: -1 is less than the minimum of 0"),
        ({"age": 5}, '"name" is a required property'),
        ({}, '"name" is a required property'),
        ({"name": "Ada", "nick": "A"}, "the form has no field 'nick'; its fields are 'name', 'age'"),
        ({"name": object()}, "TypeError: the answer can't be turned into JSON"),
        (5, "TypeError: the elicitation callback must return an ElicitResult, .*; got int"),
        ("yes", "TypeError: the elicitation callback must return"),
        (["name"], "got list"),
    ],
)
async def test_an_answer_that_does_not_fit_is_not_sent(
    answer: Any, match: str, caplog: pytest.LogCaptureFixture
) -> None:
    raised = await ask(MODERN, NAME, lambda _: answer)
    assert isinstance(raised, InputError)
    assert (raised.method, raised.key) == ("elicitation/create", "q")
    with pytest.raises(InputError, match=match):
        raise raised
    assert caplog.text == ""
    refused = await ask("2025-11-25", NAME, lambda _: answer)
    assert refused == ErrorData(-32603, "internal error in 'elicitation/create'")
    assert raised.reason.partition(": ")[2] in caplog.text  # for the author of the callback


async def test_a_url_takes_no_content() -> None:
    raised = await ask(MODERN, url(), lambda _: {"name": "Ada"})
    assert isinstance(raised, InputError)
    assert "does not pass through the client" in str(raised)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({}, "malformed parameters"),
        (None, "malformed parameters"),
        ([], "malformed parameters"),
        ({"message": "no schema"}, "requestedSchema"),
        ({**NAME, "mode": "voice"}, "malformed parameters"),
        ({"message": "x", "requestedSchema": {"type": "object"}}, "properties"),
        ({"message": "x", "requestedSchema": {"type": "array", "properties": {}}}, "type"),
        (form(a={"type": "string", "enum": "abc"}), "malformed parameters"),
        (form(a={"type": "string", "pattern": "("}), "the requested schema can't be used"),
        (form(a={"$ref": "https://example.org/a"}), "the requested schema can't be used"),
        (url("javascript:alert(1)"), "must have an http or https URL"),
        (url("file:///etc/passwd"), "must have an http or https URL"),
        (url("https://"), "must have an http or https URL"),
        (url("https://exa mple.org"), "must have an http or https URL"),
        (url("https://example.org/\u202egro"), "must have an http or https URL"),
        (url("https://[::1"), "must have an http or https URL"),
        (url("example.org"), "must have an http or https URL"),
    ],
)
async def test_a_malformed_request_never_reaches_the_callback(params: Any, match: str) -> None:
    def callback(params: Any) -> Any:
        pytest.fail("the callback was called")

    raised = await ask(MODERN, params, callback)
    assert isinstance(raised, RemoteProtocolError)
    assert match in str(raised)
    assert "'q' of 'tools/call'" in str(raised)
    if isinstance(params, dict):
        refused = await ask("2025-11-25", params, callback)
        assert refused.code == -32602
        assert match in refused.message


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
@pytest.mark.parametrize(
    ("modes", "params"), [(("form",), url()), (("url",), NAME), (("url",), {**NAME, "mode": "form"})]
)
async def test_a_mode_that_is_not_declared_is_refused(era: str, modes: Any, params: Any) -> None:
    """2025-11-25 `client/elicitation`, Error Handling: -32602."""
    refused = await ask(era, params, lambda _: pytest.fail("the callback was called"), elicitation_modes=modes)
    assert refused.code == -32602
    assert "does not support elicitation by" in refused.message


async def test_revisions_without_elicitation_or_without_urls_refuse_it() -> None:
    refused = await ask("2025-03-26", NAME, lambda _: {})
    assert refused.code == -32601
    refused = await ask("2025-06-18", url(), lambda _: "accept")
    assert refused.code == -32602
    refused = await ask("2025-06-18", NAME, lambda _: {}, elicitation_modes=("url",))
    assert refused.code == -32601


def answer_by(callback: Callable[[Any], Any], schema: dict[str, Any]) -> Any:
    sources = InputSources(Answers(elicitation=callback, elicitation_modes=("form",)))
    params = {"message": "x", "requestedSchema": schema}
    return sources.prepare(MODERN, "elicitation/create", params)


@given(st.data(), forms())
def test_any_answer_that_fits_is_sent_with_the_defaults(data: st.DataObject, schema: dict[str, Any]) -> None:
    answer = data.draw(conforming_answers(schema))
    sent = trio.run(answer_by(lambda _: answer, schema))
    defaults = {name: field["default"] for name, field in schema["properties"].items() if "default" in field}
    assert sent == {"action": "accept", "content": {**defaults, **answer}}


@given(st.data(), forms(min_fields=1))
def test_no_answer_that_does_not_fit_is_ever_sent(data: st.DataObject, schema: dict[str, Any]) -> None:
    answer, _ = data.draw(spoiled_answers(schema))
    # What is left out and has a default is filled in.
    fields, required = schema["properties"], schema["required"]
    mended = [name for name in required if name not in answer and "default" in fields[name]]
    if mended:
        return
    with pytest.raises(ValueError, match="does not match the requested schema"):
        trio.run(answer_by(lambda _: answer, schema))
