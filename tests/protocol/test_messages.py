"""The envelopes, and what may be an id."""

import attrs
import pytest

from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    Response,
    SessionMessage,
    is_request_id,
)


@pytest.mark.parametrize("value", [0, -1, 2**70, "", "1", "é"])
def test_strings_and_integers_are_ids(value: object) -> None:
    """`basic`, Requests: "Requests MUST include a string or integer ID"."""
    assert is_request_id(value)


@pytest.mark.parametrize("value", [None, True, False, 1.0, float("nan"), b"1", [1], {}])
def test_nothing_else_is_an_id(value: object) -> None:
    """Neither null (`basic`, Requests) nor what Python or JavaScript take for a number: bool, float."""
    assert not is_request_id(value)


@pytest.mark.parametrize(
    "message",
    [
        Request(1, "x"),
        Notification("x"),
        Response(1, {}),
        ErrorResponse(None, ErrorData(1, "x")),
        Malformed(1, "x"),
        Batch(()),
        SessionMessage(Request(1, "x")),
    ],
)
def test_messages_are_immutable(message: object) -> None:
    """Both ends of a memory link share one message, so neither may change it."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        message.anything = 1  # type: ignore[attr-defined]
    name = attrs.fields(type(message))[0].name  # type: ignore[arg-type]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(message, name, 2)


def test_messages_compare_by_content_and_kind() -> None:
    assert Request(1, "x", {"a": 1}) == Request(1, "x", {"a": 1})
    assert Request(1, "x") != Request("1", "x")
    assert Notification("x") != Request(1, "x")
