"""Batches of JSON-RPC, which only 2025-03-26 has: ``basic``, section Batching."""

from __future__ import annotations

from typing import Any

from tests.peer import Peer
from tests.requirements.case import Case
from tests.requirements.model import ALL, REFUSED, Topic
from trio_mcp import Server
from trio_mcp.jsonrpc.messages import Batch, ErrorResponse, Incoming, Notification, Request, Response
from trio_mcp.types import error_codes

WITH = ("2025-03-26",)
WITHOUT = tuple(revision for revision in ALL if revision not in WITH)


def server() -> Server:
    made = Server("batches")

    @made.tool
    async def echo(text: str) -> str:
        """Give the text back."""
        return text

    return made


topic = Topic("Batches", server)


def call(request_id: int | str, text: str = "x") -> Request:
    return Request(request_id, "tools/call", {"name": "echo", "arguments": {"text": text}})


async def exchange(hand: Peer, *items: Any) -> Incoming:
    await hand.send(Batch(items))
    return await hand.receive()


@topic.row(
    "basic#batching",
    "Requests in a batch, even one, are answered in a batch, by their ids; notifications are not.",
    WITH,
)
async def answered(case: Case) -> None:
    note = Notification("notifications/nobody_knows")
    async with case.hand() as hand:
        for items in ((call(1, "1"), call("2", "2")), (call(1, "1"),), (note, call(1, "1"))):
            answer = await exchange(hand, *items)
            assert isinstance(answer, Batch)
            assert all(isinstance(each, Response) for each in answer.items)
            found = {each.id: each.result["content"][0]["text"] for each in answer.items if isinstance(each, Response)}
            assert found == {each.id: str(each.id) for each in items if isinstance(each, Request)}


@topic.row("basic#batching", "A batch of notifications only is not answered.", WITH)
async def notifications_only(hand: Peer) -> None:
    await hand.send(Batch((Notification("notifications/nobody_knows"), Notification("notifications/other"))))
    assert await hand.result("ping") == {}
    assert hand.answered == hand.asked


@topic.row("basic#batching", "A failing request in a batch does not affect the others.", WITH)
async def failure(hand: Peer) -> None:
    answer = await exchange(hand, Request(1, "no/such/method"), call(2), Request(3, "ping"))
    assert isinstance(answer, Batch)
    found = {each.id: each for each in answer.items if isinstance(each, (Response, ErrorResponse))}
    refused = found[1]
    assert isinstance(refused, ErrorResponse)
    assert refused.error.code == error_codes.METHOD_NOT_FOUND
    assert isinstance(found[2], Response)
    assert isinstance(found[3], Response)


@topic.row("basic#batching", "An empty batch is refused with -32600, with a single error, not a batch.", WITH)
async def empty(hand: Peer) -> None:
    answer = await exchange(hand)
    assert isinstance(answer, ErrorResponse)
    assert answer.error.code == error_codes.INVALID_REQUEST


@topic.row("basic/lifecycle#initialization", "initialize in a batch is refused.", WITH)
async def initialize(case: Case) -> None:
    async with case.greeting() as hand:
        answer = await exchange(hand, Request(1, "initialize", hand.hello()))
        items = answer.items if isinstance(answer, Batch) else (answer,)
        assert [type(each) for each in items] == [ErrorResponse]
        assert (await hand.result("initialize", hand.hello()))["protocolVersion"] == case.revision


@topic.row("basic#messages", "A batch is refused with -32600, and nothing in it runs.", WITHOUT, REFUSED)
async def refused(hand: Peer) -> None:
    await hand.call(
        "echo", {"text": "x"}
    )  # over a socket the first line must be an object, or else the peer is not MCP's
    answer = await exchange(hand, call(1), call(2))
    assert isinstance(answer, ErrorResponse)
    assert (answer.id, answer.error.code) == (None, error_codes.INVALID_REQUEST)
    await hand.call("echo", {"text": "x"})
    assert hand.answered == hand.asked


topic.held(
    """
    A batch may cancel its own requests.
        basic#batching peer.py::test_a_batch_may_cancel_what_it_asks_for 2025-03-26
    The answer to a batch leaves out its cancelled requests.
        basic#batching peer.py::test_a_cancelled_request_of_a_batch_holds_nothing_up 2025-03-26
    The number of messages in a batch is bounded.
        basic#batching codec.py::test_the_size_of_a_batch_is_bounded 2025-03-26
    """,
    tests="tests/protocol/test_",
)
