"""Icons: what may be offered, loaded and shown (2025-11-25 and later, `basic`, section icons)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.tables import by_outcome
from trio_mcp import types
from trio_mcp.types import Icon, checked_icons, decode_icon, icon_problem, image_type, pick_icon

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
GIF = b"GIF89a" + b"pixels"
JPEG = b"\xff\xd8\xff\xe0" + b"pixels"
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8 "


def data_uri(data: bytes, mime_type: str = "image/png") -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize(
    "src",
    [
        "https://example.com/i.png",
        "HTTPS://example.com",
        "https://[::1]:8443/i?x=1#f",
        data_uri(PNG),
        data_uri(b"<svg/>", "image/svg+xml"),
        "DATA:image/PNG;name=x;base64,AAAA",
    ],
)
def test_https_and_data_uris_may_be_loaded(src: str) -> None:
    assert icon_problem(Icon(src=src)) is None


@by_outcome(
    "src",
    "problem",
    {
        "the scheme": (
            "http://example.com/x | javascript:alert(1)//x | JavaScript:alert(1)//x | file:///etc/passwd/x | "
            "ftp://example.com/x | ws://example.com/x | vscode://open/x | blob:https://example.com/x"
        ),
        "not an absolute URI": ("java\tscript:alert(1) |  https://example.com/i | https://example.com/i\n | /i.png | "),
        "must be a URL with a host": "https:/i.png | https://:443/i.png | https://[::1/i.png",
        "must be a URL with a host and without credentials": "https://user:secret@example.com/i.png",
        "does not contain an image in Base64": (
            "data:text/html;base64,AAAA | data:image/png,AAAA | data:image/png;base64, | data:image/png;base64,<svg>"
        ),
    },
)
def test_anything_else_must_not_be_loaded(src: str, problem: str) -> None:
    """Clients MUST reject unsafe schemes, and load icons without credentials."""
    found = icon_problem(Icon(src=src))
    assert found is not None
    assert problem in found


@given(st.text(max_size=60))
def test_whatever_a_server_sends_gets_an_answer(src: str) -> None:
    icon = Icon(src=src)
    assert icon_problem(icon) is None or pick_icon([icon]) is None


@pytest.mark.parametrize(
    ("icons", "error", "message"),
    [
        ([Icon(src="javascript:x")], ValueError, "the icon 'javascript:x' can't be used: its src has the scheme"),
        ([Icon(src="http://example.com/i.png")], ValueError, "clients load icons from https: and data: URIs only"),
        ([Icon(src="https://example.com/", mime_type="text/html")], ValueError, "'text/html' is not an image type"),
        (
            [Icon(src="https://example.com/", sizes=["48x48", "48"])],
            ValueError,
            "'48' is neither 'any' nor of the form",
        ),
        ([Icon(src="https://example.com/", sizes=["0x0"])], ValueError, "'0x0' is neither"),
        (["https://example.com/"], TypeError, "an icon must be a types.Icon, got str"),
        ("https://example.com/", TypeError, "icons must be a list of types.Icon, got str"),
        (Icon(src="https://example.com/"), TypeError, "icons must be a list of types.Icon, got Icon"),
        (5, TypeError, "icons must be a list of types.Icon, got int"),
    ],
)
def test_what_an_application_offers_is_checked(icons: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="tool 'x': ") as caught:
        checked_icons(icons, "tool 'x'")
    assert message in str(caught.value)


def test_good_icons_pass_as_they_are_and_plain_data_becomes_an_icon() -> None:
    icon = Icon(src="https://example.com/i.svg", mime_type="image/svg+xml", sizes=["any", "48x48"], theme="dark")
    assert checked_icons(iter([icon, {"src": data_uri(PNG)}]), "x") == [icon, Icon(src=data_uri(PNG))]


def icon(name: str, **fields: Any) -> Icon:
    return Icon(src=f"https://example.com/{name}", **fields)


SMALL, MIDDLE, LARGE = (icon(f"{side}", sizes=[f"{side}x{side}"]) for side in (16, 48, 256))
SVG, JPG = icon("svg", mime_type="image/svg+xml"), Icon(src=data_uri(JPEG, "image/jpg"))
SCALABLE, DARK, LIGHT = icon("any", sizes=["any"]), icon("dark", theme="dark"), icon("light", theme="light")


@pytest.mark.parametrize(
    ("icons", "wanted", "picked"),
    [
        ([SMALL, MIDDLE, LARGE], {}, MIDDLE),
        ([SMALL, LARGE, MIDDLE], {"size": 49}, LARGE),
        ([SMALL, MIDDLE], {"size": 500}, MIDDLE),
        ([SMALL, SCALABLE], {"size": 500}, SCALABLE),
        ([SMALL, icon("none")], {"size": 500}, icon("none")),
        ([icon("wide", sizes=["16x100"]), SMALL], {"size": 64}, icon("wide", sizes=["16x100"])),
        ([LIGHT, DARK], {"theme": "dark"}, DARK),
        ([LIGHT, icon("plain")], {"theme": "dark"}, icon("plain")),
        ([LIGHT], {"theme": "dark"}, LIGHT),
        ([DARK, icon("plain")], {}, icon("plain")),
        ([icon("bad", sizes=["huge"])], {}, icon("bad", sizes=["huge"])),
        ([SVG, SMALL], {}, SMALL),
        ([SVG], {}, None),
        ([icon("page", mime_type="text/html")], {}, None),
        ([Icon(src="javascript:x"), Icon(src="http://example.com/")], {}, None),
        ([Icon(src=data_uri(b"<svg/>", "image/svg+xml"), mime_type="image/png")], {}, None),
        ([JPG], {"mime_types": ["image/jpeg"]}, JPG),
        ([SVG], {"mime_types": ["image/svg+xml"]}, SVG),
        ([], {}, None),
        (None, {}, None),
    ],
)
def test_the_icon_that_fits_best_is_picked(icons: Any, wanted: dict[str, Any], picked: Icon | None) -> None:
    assert pick_icon(icons, **wanted) == picked


@pytest.mark.parametrize(
    ("data", "declared", "mime_type"),
    [
        (PNG, "image/png", "image/png"),
        (JPEG, "image/jpeg", "image/jpeg"),
        (JPEG, "image/jpg", "image/jpeg"),
        (GIF, "IMAGE/GIF", "image/gif"),
        (WEBP, "image/webp", "image/webp"),
    ],
)
def test_a_data_uri_is_decoded(data: bytes, declared: str, mime_type: str) -> None:
    assert decode_icon(Icon(src=data_uri(data, declared))) == (mime_type, data)
    escaped = data_uri(data, declared).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    assert decode_icon(Icon(src=escaped.replace("%2F", "/", 1))) == (mime_type, data)


@pytest.mark.parametrize(
    ("src", "message"),
    [
        ("https://example.com/i.png", "not a data: URI"),
        (data_uri(PNG, "image/gif"), "is declared as 'image/gif', but is 'image/png'"),
        (data_uri(b"<svg onload='x'/>", "image/png"), "not an image of a known type"),
        (data_uri(b"<svg/>", "image/svg+xml"), "not an image of a known type"),
        ("data:image/png;base64,AAA", "not valid Base64"),
        ("data:image/png;base64,%ff", "not valid Base64"),
    ],
)
def test_the_bytes_decide_what_a_data_uri_holds(src: str, message: str) -> None:
    """Detect the type via magic bytes; reject on mismatch or unknown types."""
    with pytest.raises(ValueError, match=message):
        decode_icon(Icon(src=src))


def test_a_data_uri_is_bounded() -> None:
    exact = Icon(src=data_uri(PNG))
    assert decode_icon(exact, max_bytes=len(PNG)) == ("image/png", PNG)
    for source in (data_uri(PNG), data_uri(PNG * 1000)):
        with pytest.raises(ValueError, match="larger than 13 bytes"):
            decode_icon(Icon(src=source), max_bytes=len(PNG) - 1)


@given(st.binary(max_size=40), st.integers(0, 60))
def test_an_escaped_data_uri_within_the_limit_is_never_too_large(tail: bytes, spare: int) -> None:
    data = PNG + tail
    encoded = "".join(f"%{ord(letter):02X}" for letter in base64.b64encode(data).decode())
    icon = Icon(src="data:image/png;base64," + encoded)
    assert decode_icon(icon, max_bytes=len(data) + spare)[1] == data


def test_unknown_bytes_are_no_image() -> None:
    assert [image_type(data) for data in (b"", b"RIFF", b"<svg/>", b"RIFF0000WAVE")] == [None] * 4


@pytest.mark.parametrize(
    ("icons", "kept"),
    [
        ([{"src": "javascript:x"}], ["javascript:x"]),  # kept: a client must ask icon_problem before it shows it
        ([{"src": 5}, {"src": "https://a/"}, {}, None, "x", {"src": "https://b/", "theme": "blue"}], ["https://a/"]),
        ([{"src": "https://a/", "sizes": "48x48"}], []),
        ("icon", None),
        ({"src": "https://a/"}, None),
    ],
)
def test_a_bad_icon_does_not_cost_a_list_of_tools(icons: Any, kept: list[str] | None) -> None:
    wire = {"tools": [{"name": "a", "inputSchema": {"type": "object"}, "icons": icons}]}
    (tool,) = types.ListToolsResult.from_wire(wire).tools
    assert (None if tool.icons is None else [each.src for each in tool.icons]) == kept
    assert types.Implementation.from_wire({"name": "s", "version": "1", "icons": icons}).name == "s"
