"""Checks icons, picks the one that fits best, and decodes data: URIs (since 2025-11-25, `basic`, "icons").

Loading an https: icon is left to the application: it must send no credentials, should load only from the server's own
origin, and must follow no redirect to another origin. `image_type` identifies the type of the loaded bytes.
"""

import base64
import binascii
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from trio_mcp.types.common import Icon, IconTheme

__all__ = ["RASTER_TYPES", "checked_icons", "decode_icon", "icon_problem", "image_type", "pick_icon"]

RASTER_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/jpg", "image/webp", "image/gif"})
"""The image types that can't contain code; SVG can."""

# A scheme and visible ASCII (RFC 3986, section 3.1); `icon_problem` checks the rest, which depends on the scheme.
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):[!-~]+")
_DATA: Final = re.compile(r"data:(image/[a-z0-9.+-]+)(?:;[^,;]+)*;base64,([A-Za-z0-9+/=%]+)", re.IGNORECASE)
_MIME_TYPE: Final = re.compile(r"image/[a-z0-9.+-]+", re.IGNORECASE)
# A number may have at most five digits, so that a hostile server can't make it huge.
_SIZE: Final = re.compile(r"any|[1-9][0-9]{0,4}x[1-9][0-9]{0,4}")


def icon_problem(icon: Icon) -> str | None:
    """Return the reason why an icon must not be loaded; None if it may be.

    Clients must reject URIs that are neither https: nor data:, and must load icons without credentials.
    """
    uri = _URI.fullmatch(icon.src)
    if uri is None:
        return "its src is not an absolute URI"
    scheme = uri[1].lower()
    if scheme == "data":
        return None if _DATA.fullmatch(icon.src) else "its data: URI does not contain an image in Base64"
    if scheme != "https":
        return f"its src has the scheme {scheme[:20]!r}; clients load icons from https: and data: URIs only"
    try:
        url = urlsplit(icon.src)
        bad = not url.hostname or url.username is not None
    except ValueError:  # the URL is malformed: for example, an IPv6 address has no closing bracket
        bad = True
    return "its src must be a URL with a host and without credentials" if bad else None


def checked_icons(icons: Iterable[Icon], what: str) -> list[Icon]:
    """Check the icons that an application declares, and return them as a list.

    Args:
        icons: The icons.
        what: The object that the icons are declared for, for the error message.

    Raises:
        TypeError: If ``icons`` is not a list of `Icon`.
        ValueError: If clients could not show an icon: it must not be loaded, or its type or sizes are malformed.
    """
    # A single URI, icon or mapping is iterable, too, but passing one instead of a list is a mistake.
    if isinstance(icons, (str, bytes, Icon, Mapping)) or not isinstance(icons, Iterable):
        raise TypeError(f"{what}: icons must be a list of types.Icon, got {type(icons).__name__}")
    checked = []
    for icon in icons:
        if isinstance(icon, Mapping):
            icon = Icon(**icon)
        if not isinstance(icon, Icon):
            raise TypeError(f"{what}: an icon must be a types.Icon, got {type(icon).__name__}")
        problem = icon_problem(icon)
        if problem is None and icon.mime_type is not None and not _MIME_TYPE.fullmatch(icon.mime_type):
            problem = f"its mime_type {icon.mime_type[:50]!r} is not an image type"
        for size in icon.sizes or ():
            if problem is None and not _SIZE.fullmatch(size):
                problem = f"its size {size[:50]!r} is neither 'any' nor of the form '48x48'"
        if problem is not None:
            raise ValueError(f"{what}: the icon {icon.src[:80]!r} can't be used: {problem}")
        checked.append(icon)
    return checked


def pick_icon(
    icons: Iterable[Icon] | None,
    *,
    size: int = 48,
    theme: IconTheme | None = None,
    mime_types: Collection[str] = RASTER_TYPES,
) -> Icon | None:
    """Return the icon that fits best, of those that may be loaded.

    Args:
        icons: The icons that the server offers.
        size: The wanted length of the longer side, in pixels. The smallest icon of at least that size is picked, or
            else the largest. An icon that states no size fits any size.
        theme: The theme of the background, if known.
        mime_types: The types that can be shown. An https: icon that states no type may be picked as well.

    Returns:
        The icon; None if no icon may be loaded and can be shown.
    """

    def misfit(icon: Icon) -> tuple[int, int, int]:
        # The theme takes precedence over the size; among equals, the first icon is picked.
        theme_rank = 0 if icon.theme == theme else 1 if icon.theme is None or theme is None else 2
        return theme_rank, *_distance(icon, size)

    shown = [icon for icon in icons or () if icon_problem(icon) is None and _type_of(icon) in (None, *mime_types)]
    return min(shown, key=misfit, default=None)


def decode_icon(icon: Icon, *, max_bytes: int = 1_000_000) -> tuple[str, bytes]:
    """Decode an icon that is a data: URI.

    The type is determined by the bytes; the type that the server states must agree.

    Returns:
        The type, one of `RASTER_TYPES`, and the bytes of the image.

    Raises:
        ValueError: If the icon is not a data: URI, is larger than ``max_bytes``, or is not an image of the type stated.
    """
    match = _DATA.fullmatch(icon.src)
    if match is None:
        raise ValueError("the src of the icon is not a data: URI that contains an image in Base64")
    declared, encoded = _plain(match[1]), match[2]
    # The size is checked before decoding, too: Base64 turns three bytes into four characters, and percent-encoding
    # turns each character into three.
    if len(encoded) > 4 * (max_bytes + 2):
        raise ValueError(f"the icon is larger than {max_bytes} bytes")
    try:
        data = base64.b64decode(unquote_to_bytes(encoded), validate=True)
    except binascii.Error as exc:
        raise ValueError(f"the icon is not valid Base64: {exc}") from None
    if len(data) > max_bytes:
        raise ValueError(f"the icon is larger than {max_bytes} bytes")
    found = image_type(data)
    if found is None:
        raise ValueError(f"the icon is declared as {declared[:50]!r}, but is not an image of a known type")
    if found != declared:
        raise ValueError(f"the icon is declared as {declared[:50]!r}, but is {found!r}")
    return found, data


def image_type(data: bytes) -> str | None:
    """Return the type of an image by its first bytes: PNG, JPEG, GIF or WebP. Return None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime_type for magic, mime_type in _MAGIC if data.startswith(magic)), None)


# The first bytes of each format: PNG (RFC 2083, section 3.1), JPEG (a start-of-image marker, then another), GIF.
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def _plain(mime_type: str) -> str:
    # "image/jpg" is a common misspelling, which the specification also lists.
    mime_type = mime_type.lower()
    return "image/jpeg" if mime_type == "image/jpg" else mime_type


def _type_of(icon: Icon) -> str | None:
    """Return the type that a data: URI states, or else the one that the server states; None if neither does."""
    data = _DATA.fullmatch(icon.src)
    # The type in the URI takes precedence over the one that the server states, because the URI is what gets decoded.
    declared = data[1] if data else icon.mime_type
    return None if declared is None else _plain(declared)


def _distance(icon: Icon, size: int) -> tuple[int, int]:
    """Return how badly an icon fits a size, for comparison: exact or scalable first, then larger, then smaller ones."""
    sizes = [each for each in icon.sizes or () if _SIZE.fullmatch(each)]  # malformed sizes are ignored
    if not sizes or "any" in sizes:
        return 0, 0
    sides = [max(map(int, each.split("x"))) for each in sizes]
    return min((0, side - size) if side >= size else (1, size - side) for side in sides)
