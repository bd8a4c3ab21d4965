"""The pages of a server, which are resources of their own type (SEP-1865, UI Resource Format)."""

from __future__ import annotations

import base64
import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypedDict

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_flag, check_kind, check_text
from trio_mcp.extensions.apps.names import MIME_TYPE, SCHEME
from trio_mcp.extensions.apps.policy import Csp, checked_permissions
from trio_mcp.server.features.caching import CacheHint
from trio_mcp.server.functions.introspection import is_async
from trio_mcp.types.resources import BlobResourceContents, ResourceContents, TextResourceContents

__all__ = ["Page", "PageDetails", "check_page_uri", "make_page"]


class PageDetails(TypedDict, total=False):
    """The optional details of a page.

    Attributes:
        csp: The origins that the page uses; without it, none.
        permissions: What the page asks the browser for: some of ``"camera"``, ``"microphone"``, ``"geolocation"`` and
            ``"clipboardWrite"``. A host may refuse them.
        name: The page's name; by default the function's own, or that of the file. A lambda's is the path of the URI.
        title: The page's name for people.
        description: A description of the page; the docstring by default.
        prefers_border: Whether the host should draw a border and a background; by default the host decides.
        domain: An origin of its own for the page, in the form that the host documents.
        cache: How long clients may cache the page, and for whom, as in `ResourceDetails`.
        scopes: The scopes that reading the page over HTTP needs, as in `ResourceDetails`.
    """

    csp: Csp | None
    permissions: Iterable[str]
    name: str | None
    title: str | None
    description: str | None
    prefers_border: bool | None
    domain: str | None
    cache: CacheHint | None
    scopes: Iterable[str] | None


def check_page_uri(uri: object, what: str) -> str:
    """Check the URI of a page.

    Raises:
        TypeError: If it is not a string.
        ValueError: If it is not a ``ui://`` URI, or is a template.
    """
    if not isinstance(uri, str):
        raise TypeError(f"{what} must be a string, got {uri!r}")
    if not uri.startswith(SCHEME) or uri == SCHEME or "{" in uri:
        raise ValueError(f"{what} must be a URI that begins with {SCHEME!r}, such as 'ui://clock/face', got {uri!r}")
    return uri


@attrs.frozen
class Page:
    """A page, ready to be added to a server as a resource.

    Attributes:
        uri: Its URI.
        function: Returns its contents.
        details: Its details as a resource.
    """

    uri: str
    function: Callable[..., Any]
    details: Any


def make_page(uri: str, source: Callable[..., Any] | str | os.PathLike[str], details: PageDetails) -> Page:
    """Make a page of a function that returns HTML, or of a file.

    Raises:
        TypeError, ValueError: If the URI or a detail is invalid, or the file does not exist.
    """
    what = f"page {check_page_uri(uri, 'the URI of a page')!r}"
    ui = _metadata(what, details)
    told: dict[str, Any] = {
        name: details[name] for name in ("name", "title", "description", "cache", "scopes") if name in details
    }
    if not callable(source):
        path = Path(source)
        if not path.is_file():
            raise ValueError(f"{what}: there is no file {str(path)!r}")
        told.setdefault("name", path.name)
        source = functools.partial(path.read_bytes)  # a partial has no docstring of its own
    elif getattr(source, "__name__", "<lambda>") == "<lambda>":
        told.setdefault("name", uri.removeprefix(SCHEME))
    if ui:
        told["meta"] = {"ui": ui}
    return Page(uri, _reading(uri, source, ui), {**told, "mime_type": MIME_TYPE})


def _metadata(what: str, details: PageDetails) -> dict[str, Any]:
    """Return the ``_meta.ui`` of a page.

    Raises:
        TypeError, ValueError: If a detail is invalid.
    """
    csp, border, domain = details.get("csp"), details.get("prefers_border"), details.get("domain")
    ui: dict[str, Any] = {}
    if csp is not None:
        check_kind(f"{what}: csp", csp, kind=Csp)
        ui["csp"] = csp.to_wire()
    if permissions := checked_permissions(details.get("permissions", ()), what):
        ui["permissions"] = {each: {} for each in permissions}
    if domain is not None:
        check_text(f"{what}: domain", domain)
        ui["domain"] = domain
    if border is not None:
        check_flag(f"{what}: prefers_border", border)
        ui["prefersBorder"] = border
    return ui


def _reading(uri: str, function: Callable[..., Any], ui: dict[str, Any]) -> Callable[..., Any]:
    """Return a function with the same parameters that returns the contents of the page."""
    meta = {"ui": ui} if ui else None
    if is_async(function):

        @functools.wraps(function)
        async def read(*arguments: Any, **named: Any) -> ResourceContents:
            return _contents(uri, await function(*arguments, **named), meta)

        return read

    @functools.wraps(function)
    def read_in_thread(*arguments: Any, **named: Any) -> ResourceContents:
        return _contents(uri, function(*arguments, **named), meta)

    return read_in_thread


def _contents(uri: str, html: object, meta: dict[str, Any] | None) -> ResourceContents:
    if isinstance(html, str):
        text = html.encode("utf-8", "backslashreplace").decode()  # UTF-8 can't encode lone surrogates
    elif isinstance(html, bytes):
        try:
            text = html.decode()
        except UnicodeDecodeError:  # the page says itself which encoding it has
            blob = base64.b64encode(html).decode()
            return BlobResourceContents(uri=uri, mime_type=MIME_TYPE, blob=blob, meta=meta)
    else:
        raise TypeError(f"the function of the page {uri!r} must return HTML as str or bytes, got {html!r:.100}")
    return TextResourceContents(uri=uri, mime_type=MIME_TYPE, text=text, meta=meta)
