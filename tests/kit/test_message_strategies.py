"""Messages, hostile messages and headers, and what becomes of them on the wire."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from tests.types.published import validator
from trio_mcp import Server
from trio_mcp._nursery import background_nursery
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE, LineDecoder, decode, encode
from trio_mcp.jsonrpc.messages import Malformed, Notification, Request
from trio_mcp.low_level import stream_link
from trio_mcp.testing.strategies import (
    HEADER_FAULTS,
    MESSAGE_FAULTS,
    AllowedOutcome,
    Hostile,
    chunks,
    cut_off,
    draws,
    hostile_headers,
    hostile_messages,
    interleaved,
    lines,
    messages,
    notifications,
    requests,
    results,
)
from trio_mcp.types.methods import MethodSpec, methods_of
from trio_mcp.types.versions import REVISIONS, Era, era_of

PAIRS = [(revision, spec) for revision in REVISIONS for spec in methods_of(revision).values()]
SENT = [(revision, spec) for revision, spec in PAIRS if not spec.embedded]
MODERN = "2026-07-28"
LEGACY = "2025-11-25"


def ids(value: Any) -> str:
    return str(getattr(value, "method", value))


# --- valid ones --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("revision", "spec"), SENT, ids=ids)
def test_a_message_is_one_and_its_parameters_fit(revision: str, spec: MethodSpec) -> None:
    strategy = requests(spec.method, revision) if spec.is_request else notifications(spec.method, revision)
    for message in draws(strategy, 2):
        parsed = decode(json.dumps(message).encode())
        assert isinstance(parsed, Request if spec.is_request else Notification)
        assert parsed.method == spec.method
        spec.message.from_wire(message)


@pytest.mark.published
@pytest.mark.parametrize(("revision", "spec"), PAIRS, ids=ids)
def test_messages_and_results_fit_the_published_schema(revision: str, spec: MethodSpec) -> None:
    if not spec.embedded:
        strategy = requests(spec.method, revision) if spec.is_request else notifications(spec.method, revision)
        for message in draws(strategy, 10):
            validator(revision, spec.message_ref).validate(message)
            validator(revision, "JSONRPCRequest" if spec.is_request else "JSONRPCNotification").validate(message)
    if spec.is_request:
        schemas = [validator(revision, name) for name in spec.result_refs]
        for result in draws(results(spec.method, revision), 10):
            assert any(schema.is_valid(result) for schema in schemas), result


@pytest.mark.parametrize(
    ("make", "method", "revision", "match"),
    [
        (requests, "no/such", LEGACY, "revision 2025-11-25 has no method no/such"),
        (requests, "ping", "1900-01-01", "revision 1900-01-01 has no method ping"),
        (requests, "notifications/initialized", LEGACY, "notifications/initialized is not a request"),
        (requests, "roots/list", MODERN, "roots/list is not a request in 2026-07-28"),
        (notifications, "ping", LEGACY, "ping is not a notification"),
        (results, "notifications/initialized", LEGACY, "notifications/initialized is not a request"),
    ],
)
def test_a_message_that_a_revision_lacks_is_refused(make: Any, method: str, revision: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make(method, revision)


# --- hostile ones, sent to a healthy server -------------------------------------------------------------------------


def fits(outcome: AllowedOutcome, answer: dict[str, Any], request_id: Any) -> bool:
    """Whether a response is among what a receiver may do."""
    if "error" in answer:
        return (outcome.codes is None or answer["error"]["code"] in outcome.codes) and answer.get("id") in (
            None,
            request_id,
        )
    return outcome.result and answer["id"] == request_id


@contextlib.asynccontextmanager
async def conversation(revision: str) -> AsyncIterator[Any]:
    """Talk to a server line by line: gives a function that sends a text and returns what comes of it."""
    ours, theirs = trio.testing.memory_stream_pair()
    server, received = Server("healthy"), bytearray()

    async def receive() -> None:
        async for chunk in ours:
            received.extend(chunk)

    async def send(message: Any) -> list[dict[str, Any]]:
        text = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        received.clear()
        await ours.send_all(text + b"\n")
        await trio.testing.wait_all_tasks_blocked()
        return [json.loads(line) for line in bytes(received).splitlines()]

    async with background_nursery() as nursery, stream_link(theirs) as link:
        nursery.start_soon(receive)
        await nursery.start(server.serve, link)
        if era_of(revision) is Era.LEGACY:
            params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "kit", "version": "1"}}
            await send({"id": "opening", "method": "initialize", "params": params})
            await send({"method": "notifications/initialized"})
        yield send
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("revision", ["2025-03-26", LEGACY, MODERN])
async def test_a_healthy_server_does_one_of_the_things_that_it_may(revision: str) -> None:
    """And it is alive at the end."""
    async with conversation(revision) as send:
        for hostile in [each for name in MESSAGE_FAULTS for each in drawn(revision, name)]:
            answers = await send(hostile.text)
            assert len(answers) <= 1, hostile
            if not answers:
                assert hostile.outcome.silence, hostile
            elif not fits(hostile.outcome, answers[0], hostile.id):
                pytest.fail(f"{hostile.fault}: {hostile.text[:200]!r} -> {answers[0]}")
        (last,) = await send(next(iter(drawn(revision, "escaped"))).text)
        assert "result" in last


def drawn(revision: str, fault: str) -> list[Hostile]:
    if revision not in MESSAGE_FAULTS[fault].revisions:
        return []
    return draws(hostile_messages(revision, ids=st.integers(1, 1000), faults=[fault]), 5)


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
def test_hostile_messages_are_lines_with_a_name(revision: str) -> None:
    found = draws(hostile_messages(revision), 300)
    assert all(b"\n" not in each.text and b"\r" not in each.text for each in found)
    known = {name for name, fault in MESSAGE_FAULTS.items() if revision in fault.revisions}
    assert {each.fault for each in found} == known


def test_ids_may_be_placeholders() -> None:
    for each in draws(hostile_messages(MODERN, ids=st.just("$id"), faults=["unknown-method", "id-null"]), 20):
        assert (b'"id":"$id"' in each.text) is (each.id == "$id") is (each.fault == "unknown-method")


@pytest.mark.legacy
@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_healthy_endpoint_does_one_of_the_things_that_it_may(revision: str) -> None:
    server = Server("healthy")
    meta = {"io.modelcontextprotocol/protocolVersion": revision, "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "kit", "version": "1"}}
    usual = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    async with (
        server.asgi_app() as app,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http,
    ):
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
        usual |= {"mcp-protocol-version": revision}
        if revision == MODERN:
            usual |= {"mcp-method": "server/discover"}
        else:
            opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            opened = await http.post("/mcp", json=opening, headers=usual)
            usual |= {"mcp-session-id": opened.headers["mcp-session-id"]}
            body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for hostile in draws(hostile_headers(revision), 100):
            headers = {name: value for name, value in {**usual, **hostile.headers}.items() if value is not None}
            response = await http.post("/mcp", content=json.dumps(body), headers=headers)
            told = f"{hostile.fault} {str(hostile.headers)[:100]}: {response.status_code} {response.text[:200]}"
            assert not hostile.outcome.statuses or response.status_code in hostile.outcome.statuses, told
            assert response.status_code < 500, told
            if response.status_code == 200:
                assert hostile.outcome.result, told
            elif response.headers["content-type"].startswith("application/json"):
                assert hostile.outcome.codes is None or response.json()["error"]["code"] in hostile.outcome.codes, told


def test_headers_of_each_kind_are_drawn() -> None:
    for revision in REVISIONS[1:]:
        found = {each.fault for each in draws(hostile_headers(revision, named=True), 200)}
        known = {name for name, fault in HEADER_FAULTS.items() if revision in fault.revisions}
        assert found == known | ({"other-name"} if revision == MODERN else set())


# --- on the wire -------------------------------------------------------------------------------------------------

TEXTS = st.lists(messages().map(encode), max_size=5)


@given(st.data(), TEXTS, st.booleans())
def test_lines_carry_the_same_messages_however_they_are_cut(
    data: st.DataObject, texts: list[bytes], ended: bool
) -> None:
    decoder, got = LineDecoder(DEFAULT_MAX_MESSAGE_SIZE), []
    for chunk in data.draw(lines(texts, final_newline=ended)):
        assert chunk
        got += decoder.feed(chunk)
    last = decoder.finish()
    assert got + [last] * (last is not None) == [decode(text) for text in texts]


@given(st.data(), st.binary(max_size=200))
def test_chunks_are_the_whole(data: st.DataObject, whole: bytes) -> None:
    pieces = data.draw(chunks(whole, most=20))
    assert b"".join(pieces) == whole
    assert all(pieces)
    assert len(pieces) <= 20


@given(st.data(), st.lists(st.lists(st.binary(max_size=2), max_size=3), max_size=3))
def test_what_is_interleaved_keeps_the_order_of_each_sender(data: st.DataObject, streams: list[list[bytes]]) -> None:
    order = data.draw(interleaved(streams))
    assert [[each for sender, each in order if sender == number] for number in range(len(streams))] == streams


@given(st.data(), st.lists(messages().map(encode), min_size=1, max_size=4))
def test_what_is_cut_off_ends_within_a_message(data: st.DataObject, texts: list[bytes]) -> None:
    pieces, complete = data.draw(cut_off(texts))
    whole = b"".join(pieces)
    assert whole.split(b"\n")[:complete] == texts[:complete]
    assert isinstance(decode(whole.split(b"\n")[complete]), Malformed)
