"""HTTP fields: any text survives as a value, and whatever the headers say must be what the body says."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.tables import each_of
from trio_mcp.http.headers import (
    Headers,
    check_standard_headers,
    decode_value,
    encode_value,
    standard_headers,
)
from trio_mcp.jsonrpc.messages import Request
from trio_mcp.types.error_codes import HEADER_MISMATCH

any_text = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text("=?base64 \tA", max_size=20),
    st.text(max_size=5).map(lambda text: f"=?base64?{text.encode('utf-8', 'ignore').decode()}?="),
)


# --- values -----------------------------------------------------------------------------------------------------


@given(any_text)
def test_any_text_survives_as_a_value(text: str) -> None:
    """Section Value Encoding: what is written is visible ASCII and inner spaces, and reads back as it was."""
    value = encode_value(text)
    assert all(" " <= character <= "~" for character in value)
    assert value == value.strip()
    assert decode_value(value) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("us-west1", "us-west1"),
        ("us west 1", "us west 1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64?literal", "=?base64?literal"),
        ("=?BASE64?literal?=", "=?BASE64?literal?="),
        ("in\tner", "=?base64?aW4JbmVy?="),
        ("", "=?base64??="),
        ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
    ],
)
def test_the_examples_of_the_specification(text: str, value: str) -> None:
    """The table of section Value Encoding, and what it leaves open: tabs, the empty text, a marker that overlaps."""
    assert encode_value(text) == value
    assert decode_value(value) == text


@pytest.mark.parametrize("value", ["", "in\tner", "=?base64?=", "?=", "=?base64?SGVsbG8="])
def test_an_unmarked_value_is_literal(value: str) -> None:
    """Other clients may send these plainly."""
    assert decode_value(value) == value


@each_of(
    "value",
    "=?base64?SGVsbG8?= | =?base64?SGVs!!!bG8=?= | =?base64?SGVsbG9=?= | =?base64?/w==?= | "
    "=?base64?SGVsbG8=\n?= | caf\xe9 | a\x00b | a\nb | a\x7fb",
)
def test_what_no_encoder_writes_is_refused(value: str) -> None:
    """Padding left out, a foreign letter, stray bits, no UTF-8; bytes that are no field value."""
    with pytest.raises(ValueError, match=r"Base64|invalid characters"):
        decode_value(value)


@given(st.binary(max_size=6).map(lambda data: base64.b64encode(data).decode()), st.data())
def test_no_two_values_mean_the_same(payload: str, data: st.DataObject) -> None:
    """Decodable values are those the encoder would have written, except for plain text that was wrapped needlessly."""
    letters = list(payload)
    if letters:
        letters[data.draw(st.integers(0, len(letters) - 1))] = data.draw(st.sampled_from("ABC/+=-_ "))
    value = f"=?base64?{''.join(letters)}?="
    try:
        text = decode_value(value)
    except ValueError:
        return
    assert base64.b64encode(text.encode()).decode() == value[9:-2]


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        encode_value("\ud800")


# --- fields -----------------------------------------------------------------------------------------------------


def test_names_are_compared_in_any_case_and_values_without_the_white_space_around() -> None:
    """RFC 9110, sections 5.1 and 5.5."""
    headers = Headers([(b"MCP-method", b" \ttools/list \t"), ("X-Twice", "a"), (b"x-twice", b"b")])
    assert headers.get("Mcp-Method") == "tools/list"
    assert headers.get("X-TWICE") == "a, b"
    assert (headers.count("x-Twice"), headers.count("other"), headers.get("other")) == (2, 0, None)


# --- what repeats the body --------------------------------------------------------------------------------------

NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
methods = st.sampled_from([*NAMED, "tools/list", "server/discover", "x"])


@st.composite
def requests(draw: st.DrawFn) -> Request:
    method = draw(methods)
    params = draw(st.none() | st.dictionaries(st.sampled_from(["name", "uri"]), any_text | st.integers()))
    return Request(1, method, params)


@given(requests())
def test_what_a_client_sends_is_what_a_server_accepts(request: Request) -> None:
    """Mcp-Method always, Mcp-Name where the method has a name: both agree with the body."""
    headers = standard_headers(request)
    assert check_standard_headers(Headers(headers.items()), request) is None


@given(requests(), requests())
def test_any_disagreement_is_found(sent: Request, claimed: Request) -> None:
    """Headers made for one request don't pass with another that has a different method or name."""

    def identity(request: Request) -> Any:
        name = (request.params or {}).get(NAMED.get(request.method, ""))
        return request.method, name if isinstance(name, str) else None

    assume(identity(sent) != identity(claimed))
    headers = Headers(standard_headers(claimed).items())
    error = check_standard_headers(headers, sent)
    assert error is not None
    assert error.code == HEADER_MISMATCH
    assert len(error.message) < 600


CALL = Request(1, "tools/call", {"name": "add"})
# One row for each condition of section Server Validation: the headers, and what the message names.
ROWS: dict[str, tuple[Request, list[tuple[str, str]], str | None]] = {
    "agreement": (CALL, [("mcp-method", "tools/call"), ("MCP-NAME", "add")], None),
    "white space": (CALL, [("Mcp-Method", "tools/call"), ("Mcp-Name", "  add  ")], None),
    "needless Base64": (CALL, [("Mcp-Method", "tools/call"), ("Mcp-Name", "=?base64?YWRk?=")], None),
    "no method": (CALL, [("Mcp-Name", "add")], "Mcp-Method is missing"),
    "another method": (CALL, [("Mcp-Method", "tools/list"), ("Mcp-Name", "add")], "says 'tools/list'"),
    "method in another case": (CALL, [("Mcp-Method", "TOOLS/CALL"), ("Mcp-Name", "add")], "says 'TOOLS/CALL'"),
    "method as Base64": (CALL, [("Mcp-Method", encode_value("é")), ("Mcp-Name", "add")], "Mcp-Method says"),
    "method twice": (CALL, [("Mcp-Method", "tools/call"), ("mcp-method", "tools/call")], "more than once"),
    "no name": (CALL, [("Mcp-Method", "tools/call")], "Mcp-Name is missing"),
    "another name": (CALL, [("Mcp-Method", "tools/call"), ("Mcp-Name", "sub")], "says 'sub', but params.name is 'add'"),
    "name twice": (CALL, [("Mcp-Method", "tools/call"), ("Mcp-Name", "add"), ("Mcp-Name", "add")], "more than once"),
    "bad Base64": (CALL, [("Mcp-Method", "tools/call"), ("Mcp-Name", "=?base64?YW?=")], "not valid Base64"),
    "bad characters": (CALL, [("Mcp-Method", "tools/call"), ("Mcp-Name", "a\xffd")], "invalid characters"),
    "name without a body's": (
        Request(1, "tools/call", {}),
        [("Mcp-Method", "tools/call"), ("Mcp-Name", "add")],
        "params.name is missing",
    ),
    "name of a method without": (
        Request(1, "tools/list"),
        [("Mcp-Method", "tools/list"), ("Mcp-Name", "whatever")],
        None,
    ),
    "a URI": (
        Request(1, "resources/read", {"uri": "file:///a", "name": "x"}),
        [("Mcp-Method", "resources/read"), ("Mcp-Name", "file:///a")],
        None,
    ),
}


@pytest.mark.parametrize("row", list(ROWS))
def test_server_validation(row: str) -> None:
    """2026-07-28 basic/transports/streamable-http, Server Validation and Case Sensitivity."""
    request, pairs, fault = ROWS[row]
    error = check_standard_headers(Headers(pairs), request)
    if fault is None:
        assert error is None
    else:
        assert error is not None
        assert error.code == -32020
        assert fault in error.message


@pytest.mark.parametrize("method", ["", "a\nb", "é", " a"])
def test_a_method_that_is_not_a_field_value_is_refused(method: str) -> None:
    """It has no encoded form, and a line end in it would inject headers."""
    with pytest.raises(ValueError, match="over HTTP"):
        standard_headers(Request(1, method))
