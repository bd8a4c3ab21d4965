"""``basic``: JSON-RPC messages, their ids and errors, and what every request and result carries."""

from __future__ import annotations

from typing import Any

import trio

from tests.peer import Peer
from tests.requirements.case import Case
from tests.requirements.model import ALL, ALONE, LEGACY, MODERN, REFUSED, NotOverHttp, Topic, since
from trio_mcp import Context, Server
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Notification, Request, Response
from trio_mcp.types import error_codes, meta

CALL = "tools/call"


def server() -> Server:
    made = Server("base", version="1.0")
    released = trio.Event()

    @made.tool
    async def echo(text: str) -> str:
        """Give the text back."""
        return text

    @made.tool
    async def hold() -> str:
        """Wait until `release` is called."""
        await released.wait()
        return "released"

    @made.tool
    async def release() -> None:
        """Let `hold` go on."""
        released.set()

    @made.tool
    async def sampled(ctx: Context) -> str:
        """Need what the client may not have."""
        ctx.require_client_capability("sampling")
        return "can sample"

    @made.tool
    async def caller(ctx: Context) -> str:
        """Say who asks."""
        return ctx.client_info.name if ctx.client_info else "unnamed"

    return made


topic = Topic("Messages", server)


def echo(text: str) -> dict[str, Any]:
    return {"name": "echo", "arguments": {"text": text}}


@topic.row("basic#requests", 'A request is answered with its very id, a string or an integer; 1 and "1" are different.')
async def ids(case: Case) -> None:
    given = ("an id", 0, -7, 2**53, 1, "1")
    async with case.hand() as hand:
        for request_id in given:
            await hand.request(CALL, echo(repr(request_id)), request_id=request_id)
        for request_id in given:
            answer = await hand.answer(request_id)
            assert isinstance(answer, Response)
            assert type(answer.id) is type(request_id)
            assert answer.result["content"][0]["text"] == repr(request_id)


def _refused(kind: str, request_id: Any, not_over_http: NotOverHttp | None = None) -> None:
    @topic.row("basic#requests", f"A request whose id is {kind} is refused with -32600.", ALL, not_over_http)
    async def scenario(hand: Peer) -> None:
        await hand.send(Request(request_id, "tools/list", {"_meta": hand.fields}))
        answer = await hand.answer(None)
        assert isinstance(answer, ErrorResponse)
        assert answer.error.code == error_codes.INVALID_REQUEST
        assert "tools" in await hand.result("tools/list")  # and the link lives on


_refused("null", None)
_refused("a fraction", 1.5, REFUSED)
_refused("a boolean", True, REFUSED)


@topic.row(
    "basic#requests",
    "A request whose id is in flight is refused; the first request is still answered.",
    not_over_http=NotOverHttp("two requests over HTTP may come in any order"),
)
async def id_in_flight(hand: Peer) -> None:
    await hand.request(CALL, {"name": "hold"}, request_id=5)
    await hand.request(CALL, echo("x"), request_id=5)
    refused = await hand.answer(5)
    assert isinstance(refused, ErrorResponse)
    assert refused.error.code == error_codes.INVALID_REQUEST
    await hand.call("release")
    first = await hand.answer(5)
    assert isinstance(first, Response)
    assert first.result["content"][0]["text"] == "released"


@topic.row(
    "basic#requests",
    "A request whose params are not an object is refused with -32600 or -32602.",
    not_over_http=REFUSED,
)
async def params_that_are_no_object(hand: Peer) -> None:
    params: Any = [1, 2]
    await hand.send(Request(9, "tools/list", params))
    answer = await hand.answer(9)
    assert isinstance(answer, ErrorResponse)
    assert answer.error.code in (error_codes.INVALID_REQUEST, error_codes.INVALID_PARAMS)


@topic.row("basic#error-codes", "A method that does not exist is refused with -32601.")
async def unknown_method(hand: Peer) -> None:
    error = await hand.error("no/such/method")
    assert error.code == error_codes.METHOD_NOT_FOUND


@topic.row("basic#error-codes", "A request with a method that only servers send is refused with -32601.")
async def method_of_the_other_side(hand: Peer) -> None:
    for method in ("sampling/createMessage", "roots/list", "elicitation/create"):
        assert (await hand.error(method)).code == error_codes.METHOD_NOT_FOUND


@topic.row("basic#error-responses", "An error has an integer code and a message, and the id of its request.")
async def shape_of_an_error(hand: Peer) -> None:
    answer = await hand.answer(await hand.request("no/such/method", request_id="which"))
    assert isinstance(answer, ErrorResponse)
    assert answer.id == "which"
    assert type(answer.error.code) is int
    assert type(answer.error.message) is str
    assert answer.error.message


def _not_answered(section: str, text: str, *messages: Any) -> None:
    @topic.row(section, text, not_over_http=ALONE)
    async def scenario(hand: Peer) -> None:
        for message in messages:
            await hand.send(message)
        await hand.call("echo", {"text": "x"})
        assert hand.answered == {*hand.asked}


_not_answered(
    "basic#notifications",
    "A notification is not answered, even if its method is unknown.",
    Notification("notifications/unknown", {"x": 1}),
)
_not_answered(
    "basic#notifications",
    "A message with the method of a request, but no id, is not answered.",
    Notification(CALL, echo("x")),
)
_not_answered("basic#responses", "A result that matches no request of the server is ignored.", Response(77, {"x": 1}))
_not_answered(
    "basic#error-responses",
    "An error that matches no request of the server is ignored, with or without an id.",
    *[ErrorResponse(request_id, ErrorData(-1, "stray")) for request_id in (77, None)],
)


@topic.row("basic/patterns#request-and-response", "A request is answered while an earlier one is still running.")
async def requests_overlap(hand: Peer) -> None:
    slow = await hand.request(CALL, {"name": "hold"})
    assert (await hand.call("echo", {"text": "x"}))["content"][0]["text"] == "x"
    assert slow not in hand.answered
    await hand.call("release")
    assert isinstance(await hand.answer(slow), Response)


for _method, _params in (("tools/list", {}), (CALL, echo("x")), ("server/discover", {})):
    topic.gives(
        "basic#resulttype",
        f"A final result of {_method} has resultType: complete.",
        (_method, _params, "resultType"),
        "complete",
        MODERN,
    )
    topic.gives(
        "basic#_meta",
        f"A result of {_method} names the server in _meta.",
        (_method, _params, "_meta", meta.SERVER_INFO),
        {"name": "base", "version": "1.0"},
        MODERN,
    )


@topic.row("basic#_meta", "A request without any _meta is refused with -32602.", MODERN, not_over_http=REFUSED)
async def meta_missing(hand: Peer) -> None:
    await hand.send(Request(3, "tools/list"))
    answer = await hand.answer(3)
    assert isinstance(answer, ErrorResponse)
    assert answer.error.code == error_codes.INVALID_PARAMS


def _field(field: str, text: str, *values: Any, not_over_http: NotOverHttp | None = None) -> None:
    """Refuse a request with these values of a field, or without it."""

    @topic.row("basic#_meta", f"{text} is refused with -32602.", MODERN, not_over_http)
    async def scenario(hand: Peer) -> None:
        fields = hand.fields
        del fields[field]
        for number, given in enumerate([{**fields, field: value} for value in values] or [fields]):
            await hand.send(Request(number, "tools/list", {"_meta": given}))
            answer = await hand.answer(number)
            assert isinstance(answer, ErrorResponse)
            assert answer.error.code == error_codes.INVALID_PARAMS
        assert "tools" in await hand.result("tools/list")


_field(meta.PROTOCOL_VERSION, "A request that names no protocol version", not_over_http=REFUSED)
_field(
    meta.PROTOCOL_VERSION,
    "A protocol version that is not a string",
    *(20260728, None, ["2026-07-28"]),
    not_over_http=REFUSED,
)
_field(meta.CLIENT_CAPABILITIES, "A request without the client's capabilities")
_field(meta.CLIENT_CAPABILITIES, "Client capabilities that are not an object", None, [], "sampling")
_field(meta.CLIENT_INFO, "Client information that is not an object", "me", [])


@topic.row("basic#_meta", "A request need not say who the client is.", MODERN)
async def client_info_optional(hand: Peer) -> None:
    fields = hand.fields
    del fields[meta.CLIENT_INFO]
    await hand.send(Request(1, CALL, {"name": "caller", "_meta": fields}))
    answer = await hand.answer(1)
    assert isinstance(answer, Response)
    assert answer.result["content"][0]["text"] == "unnamed"


@topic.row("basic#_meta", "Each request is served for the client that it names itself.", MODERN)
async def client_info_per_request(hand: Peer) -> None:
    for name in ("one", "other"):
        info = {"name": name, "version": "1"}
        result = await hand.call("caller", **{meta.CLIENT_INFO: info})
        assert result["content"][0]["text"] == name


@topic.row(
    "basic#_meta",
    "A request that needs a capability its client has not declared is refused with -32021, which names it.",
    MODERN,
)
async def capability_required(hand: Peer) -> None:
    error = await hand.error(CALL, {"name": "sampled"})
    assert error.code == error_codes.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert error.data["requiredCapabilities"] == {"sampling": {}}


@topic.row("basic#statelessness", "Capabilities that one request declares do not count for the next.", MODERN)
async def capabilities_per_request(hand: Peer) -> None:
    result = await hand.call("sampled", **{meta.CLIENT_CAPABILITIES: {"sampling": {}}})
    assert result["content"][0]["text"] == "can sample"
    error = await hand.error(CALL, {"name": "sampled"})
    assert error.code == error_codes.MISSING_REQUIRED_CLIENT_CAPABILITY


@topic.row(
    "basic/lifecycle#capability-negotiation", "Capabilities declared in the handshake hold for every request.", LEGACY
)
async def capabilities_of_the_session(case: Case) -> None:
    async with case.hand(sampling={}) as hand:
        for _ in range(2):
            assert (await hand.call("sampled"))["content"][0]["text"] == "can sample"


@topic.row("basic#statelessness", "A request needs no other request before it.", MODERN)
async def no_request_before(hand: Peer) -> None:
    assert (await hand.call("echo", {"text": "first"}))["content"][0]["text"] == "first"


@topic.row("basic#_meta", "A request with unknown _meta entries is still served.", since("2024-11-05"))
async def unknown_meta(hand: Peer) -> None:
    result = await hand.call("echo", {"text": "x"}, **{"com.example/x": [1], "no valid key!": None})
    assert result["content"][0]["text"] == "x"


@topic.row("basic#_meta", "A request with a malformed trace context is still served.", MODERN)
async def malformed_trace_context(hand: Peer) -> None:
    for value in ("00-zz", 7, None):
        result = await hand.call("echo", {"text": "x"}, traceparent=value, tracestate=value, baggage=value)
        assert result["content"][0]["text"] == "x"


@topic.row("basic#requests", "Parameters that a method does not know are ignored.")
async def unknown_parameters(hand: Peer) -> None:
    assert "tools" in await hand.result("tools/list", {"nobodyKnows": {"x": 1}})
    result = await hand.result(CALL, {**echo("x"), "nobodyKnows": 1})
    assert result["content"][0]["text"] == "x"


@topic.row(
    "basic#notifications", "A notification whose params are not an object is not answered.", not_over_http=REFUSED
)
async def malformed_notification(hand: Peer) -> None:
    params: Any = [1]
    await hand.send(Notification("notifications/cancelled", params))
    await hand.call("echo", {"text": "x"})
    assert hand.answered == {*hand.asked}
