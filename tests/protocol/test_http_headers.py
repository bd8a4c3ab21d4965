"""HTTP fields: any text survives as a value, what repeats the body must be what the body says; whose requests pass."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.tables import each_of
from trio_mcp.http.headers import Headers, check_standard_headers, decode_value, encode_value, standard_headers
from trio_mcp.http.rules.guard import LOOPBACK_HOSTS, HostGuard
from trio_mcp.jsonrpc.messages import Request

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


@pytest.mark.parametrize("name", [None, "another-secret"])
def test_what_a_method_of_an_extension_names_is_not_shown(name: str | None) -> None:
    """It may be a secret, as the id of a task is."""
    pairs = [("Mcp-Method", "tasks/get"), *([] if name is None else [("Mcp-Name", name)])]
    request = Request(1, "tasks/get", {"taskId": "the-secret"})
    error = check_standard_headers(Headers(pairs), request, {"tasks/get": "taskId"})
    assert error is not None
    assert "params.taskId" in error.message
    assert "secret" not in error.message


@pytest.mark.parametrize("method", ["", "a\nb", "é", " a"])
def test_a_method_that_is_not_a_field_value_is_refused(method: str) -> None:
    """It has no encoded form, and a line end in it would inject headers."""
    with pytest.raises(ValueError, match="over HTTP"):
        standard_headers(Request(1, method))


# --- hosts and origins, against DNS rebinding ----------------------------------------------------------------------


LOCAL = HostGuard(LOOPBACK_HOSTS)
ANY = HostGuard(None)
KNOWN = HostGuard(["example.com:8000", "[2001:db8::1]:*", "Other.example"], ["https://app.example.com", "null"])
OPEN = HostGuard(["example.com"], ["*"])
PAGES = HostGuard(None, ["https://app.example.com"])

# Each row: the guard, the host, the origin (None: not sent), whether the request may pass.
GUARDED: list[tuple[HostGuard, str | None, str | None, bool]] = [
    (LOCAL, "localhost", None, True),
    (LOCAL, "localhost:8000", None, True),
    (LOCAL, "LOCALHOST:8000", None, True),
    (LOCAL, "127.0.0.1:1", None, True),
    (LOCAL, "[::1]:8000", None, True),
    (LOCAL, "[::1]", "http://[::1]:3000", True),
    (LOCAL, "evil.example.com", None, False),
    (LOCAL, "evil.example.com:8000", "http://evil.example.com:8000", False),
    (LOCAL, "localhost.evil.example.com", None, False),
    (LOCAL, "localhost:8000@evil.example.com", None, False),
    (LOCAL, "evil.example.com/localhost", None, False),
    (LOCAL, "", None, False),
    (LOCAL, None, None, False),
    (LOCAL, "::1", None, False),
    (LOCAL, "localhost:8000", "http://localhost:8000", True),
    (LOCAL, "localhost:8000", "http://127.0.0.1:3000", True),
    (LOCAL, "localhost:8000", "https://evil.example.com", False),
    (LOCAL, "localhost:8000", "null", False),
    (LOCAL, "localhost:8000", "", False),
    (LOCAL, "localhost:8000", "http://localhost:8000/path", False),
    (ANY, "example.com:8000", None, True),
    (ANY, None, None, True),
    (ANY, "example.com:8000", "https://EXAMPLE.com:8000", False),  # all that a rebound page sends is like this
    (ANY, "192.0.2.1:8000", "http://192.0.2.1:8000", False),
    (ANY, "localhost", "http://localhost", False),
    (ANY, "example.com", "null", False),
    (PAGES, "anything.example", "https://app.example.com", True),
    (PAGES, "evil.example", "http://evil.example", False),
    (ANY, "example.com:8000", "https://example.com", False),
    (ANY, "example.com", "https://evil.example.com", False),
    (ANY, None, "https://example.com", False),
    (KNOWN, "example.com:8000", None, True),
    (KNOWN, "example.com:8001", None, False),
    (KNOWN, "example.com", None, False),
    (KNOWN, "[2001:DB8::1]:99", None, True),
    (KNOWN, "other.example:1", None, True),
    (KNOWN, "example.com:8000", "https://app.example.com", True),
    (KNOWN, "example.com:8000", "null", True),
    (KNOWN, "example.com:8000", "http://app.example.com", False),
    (KNOWN, "example.com:8000", "https://app.example.com:444", False),
    (KNOWN, "example.com:8000", "http://example.com:8000", False),
    (OPEN, "example.com", "https://anything.example", True),
    (OPEN, "evil.example", "https://anything.example", False),
]


@pytest.mark.parametrize(("guard", "host", "origin", "passes"), GUARDED)
def test_who_may_pass(guard: HostGuard, host: str | None, origin: str | None, passes: bool) -> None:
    """S, Security & Endpoint, 1: an Origin that is present and invalid is refused; so is a foreign Host."""
    pairs = [("Host", host)] if host is not None else []
    pairs += [("Origin", origin)] if origin is not None else []
    fault = guard.check(Headers(pairs))
    assert (fault is None) == passes
    assert fault is None or "allowed_hosts" in fault or "allowed_origins" in fault


# Each row: the guard, the Origin, what the browser says of the page (Sec-Fetch-Site), whether the request may pass.
FETCHED: list[tuple[HostGuard, str | None, str, bool]] = [
    (LOCAL, None, "none", True),  # typed into the address bar
    (LOCAL, None, "same-origin", True),
    (LOCAL, None, "same-site", False),  # another port of this machine
    (LOCAL, None, "cross-site", False),  # an image or a link on a page: such a GET has no Origin
    (LOCAL, None, "CROSS-SITE", False),
    (LOCAL, None, "same-origin, cross-site", False),
    (LOCAL, None, "", False),
    (ANY, None, "cross-site", False),
    (PAGES, None, "cross-site", False),
    (PAGES, "https://app.example.com", "cross-site", True),  # the Origin says more
    (OPEN, None, "cross-site", True),
    (LOCAL, "http://localhost:3000", "cross-site", True),
]


@pytest.mark.parametrize(("guard", "origin", "site", "passes"), FETCHED)
def test_a_page_that_sends_no_origin_is_known_by_its_site(
    guard: HostGuard, origin: str | None, site: str, passes: bool
) -> None:
    """W3C Fetch Metadata, section 2.4: what a browser sends where it sends no Origin."""
    host = "example.com" if guard is OPEN else "localhost"
    pairs = [("Host", host), ("Sec-Fetch-Site", site)] + ([] if origin is None else [("Origin", origin)])
    fault = guard.check(Headers(pairs))
    assert (fault is None) == passes
    assert fault is None or "allowed_origins" in fault


def test_the_answer_names_what_was_seen() -> None:
    """The operator learns what to add and where."""
    assert LOCAL.check(Headers([("Host", "mine.example:8000")])) == (
        "a request for the host 'mine.example:8000' is refused; if that is a name of this server, add it to "
        "allowed_hosts"
    )
    fault = LOCAL.check(Headers([("Host", "localhost"), ("Origin", "https://mine.example")]))
    assert fault is not None
    assert "'https://mine.example'" in fault


def test_without_allowed_hosts_the_answer_names_both_settings() -> None:
    """Either tells the pages of the server from those of a name that was made to point at it."""
    assert ANY.check(Headers([("Host", "a.example"), ("Origin", "http://a.example")])) == (
        "a request from the origin 'http://a.example' is refused; if it is the origin of this server itself, set "
        "allowed_hosts to the names of this server; if it is trusted, add it to allowed_origins"
    )


def test_two_hosts_are_refused() -> None:
    """A reader of the first and a reader of the last would disagree."""
    assert LOCAL.check(Headers([("Host", "localhost"), ("Host", "localhost")])) is not None


@given(st.text(max_size=30), st.none() | st.text(max_size=30))
def test_a_local_server_takes_local_names_only(host: str, origin: str | None) -> None:
    """Any host that passes has one of the three names, up to its port."""
    pairs = [("Host", host)] + ([] if origin is None else [("Origin", origin)])
    if LOCAL.check(Headers(pairs)) is None:
        assert host.strip(" \t").lower().startswith(LOOPBACK_HOSTS)
        assert host.rstrip(" \t0123456789:").lower().endswith(("localhost", "[::1]", "127.", "127.0.0."))


@pytest.mark.parametrize("entry", ["", "http://example.com", "a b", "example.com:port", "::1", "a/b"])
def test_an_entry_that_is_not_a_host_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="allowed_hosts"):
        HostGuard([entry])


@pytest.mark.parametrize("entry", ["", "example.com", "https://example.com/", "https://"])
def test_an_entry_that_is_not_an_origin_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="allowed_origins"):
        HostGuard(None, [entry])


@pytest.mark.parametrize(
    ("entries", "said"), [("localhost", "list, got the string 'localhost'"), ([5], "only strings")]
)
def test_anything_but_a_list_of_strings_is_refused(entries: Any, said: str) -> None:
    """The letters of a string would be taken for hosts."""
    with pytest.raises(TypeError, match=f"allowed_hosts must .*{said}"):
        HostGuard(entries)
