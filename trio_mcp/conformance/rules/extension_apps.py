"""Rules for servers whose tools have pages: the apps extension (``io.modelcontextprotocol/ui``, SEP-1865).

They hold in every revision, and for each tool that names a page, whether or not the client shows pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from trio_mcp.conformance.members import items_of, member_of, objects_of
from trio_mcp.conformance.rules.common import code_or_result
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest
from trio_mcp.conformance.rules.model import Judge, Rule, rule
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, about, answered, each
from trio_mcp.conformance.rules.resources import is_base64
from trio_mcp.conformance.transcript.events import Event

__all__ = ["EXTENSION", "pages_of"]

EXTENSION: Final = "io.modelcontextprotocol/ui"
MIME_TYPE: Final = "text/html;profile=mcp-app"
AUDIENCES: Final = ("model", "app")

LISTED: Final = ("list-all", "next-page")
READ: Final = ("ext-app-page",)
CALLED: Final = ("call-tool",)

_DOMAINS: Final = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
_PERMISSIONS: Final = ("camera", "microphone", "geolocation", "clipboardWrite")
_DOCTYPE: Final = re.compile(r"\ufeff?(?:\s|<!--.*?-->)*<!doctype\s+html\b", re.IGNORECASE | re.DOTALL)
"""The beginning of an HTML document (HTML Living Standard, 13.1 Writing HTML documents)."""


def page_of(tool: Any) -> Any:
    """Return the URI of a tool's page; None for a tool without one."""
    return member_of(tool, "_meta", "ui", "resourceUri")


def pages_of(tools: Iterable[Any]) -> set[str]:
    """Return the URIs of the pages of some tools."""
    return {uri for uri in map(page_of, tools) if isinstance(uri, str) and uri.startswith("ui://")}


def _app_rule(section: str, sentence: str, *moves: str) -> Callable[[Judge], Rule]:
    return rule("MUST", "server", f"extensions/apps#{section}", sentence, moves=moves)


def _tools(history: History) -> Iterator[tuple[Event, dict[str, Any]]]:
    """Yield each tool with metadata for apps, preceded by the response that lists it."""
    for answer, _, asked in answered("tools/list")(history):
        for tool in objects_of(asked.result, "tools"):
            if isinstance(member_of(tool, "_meta", "ui"), dict):
                yield answer, tool


@_app_rule("content-requirements", "Give a page a URI that begins with `ui://`.", *LISTED)
@each(_tools)
def ext_app_uri(_: Event, tool: dict[str, Any]) -> Opinion:
    uri = page_of(tool)
    if uri is None:
        return UNDECIDED
    kept = isinstance(uri, str) and uri.startswith("ui://")
    return None if kept else f"the page of the tool {tool.get('name')!r:.60} has the URI {uri!r:.80}"


@_app_rule("resource-discovery", "Say by `model` and `app` who sees a tool.", *LISTED)
@each(_tools)
def ext_app_visibility(_: Event, tool: dict[str, Any]) -> Opinion:
    seen = member_of(tool, "_meta", "ui").get("visibility", [*AUDIENCES])
    kept = isinstance(seen, list) and all(audience in AUDIENCES for audience in seen)
    return None if kept else f"the tool {tool.get('name')!r:.60} has the visibility {seen!r:.60}"


def _pages(history: History) -> Iterator[tuple[Event, str, RecordedRequest]]:
    """Yield the requests for the pages of tools, each preceded by its response."""
    for answer, connection, asked in about("resources/read")(history):
        uri = asked.params.get("uri")
        if isinstance(uri, str) and uri in pages_of(connection.tools.values()):
            yield answer, uri, asked


@_app_rule("resource-discovery", "Have each page that a tool names.", *READ)
@each(_pages)
def ext_app_exists(_: Event, uri: str, asked: RecordedRequest) -> Opinion:
    if items_of(asked.result, "contents") or member_of(asked.result, "resultType") == "input_required":
        return None
    return f"a tool names the page {uri!r:.80}, but reading it was answered with {code_or_result(asked)}"


def _contents(history: History) -> Iterator[tuple[Event, str, dict[str, Any]]]:
    """Yield each content of a tool's page."""
    for answer, uri, asked in _pages(history):
        for content in objects_of(asked.result, "contents"):
            yield answer, uri, content


@_app_rule("content-requirements", f"Give a page the MIME type `{MIME_TYPE}`, and a text or a blob.", *READ)
@each(_contents)
def ext_app_type(_: Event, uri: str, content: dict[str, Any]) -> Opinion:
    if content.get("mimeType") != MIME_TYPE:
        return f"the page {uri!r:.80} has the MIME type {content.get('mimeType')!r:.60}"
    kept = isinstance(content.get("text"), str) or is_base64(content.get("blob"))
    return None if kept else f"the page {uri!r:.80} has neither a text nor a blob"


@_app_rule("content-requirements", "Serve a page as an HTML document, which begins with `<!doctype html>`.", *READ)
@each(_contents)
def ext_app_html(_: Event, uri: str, content: dict[str, Any]) -> Opinion:
    text = content.get("text")
    if not isinstance(text, str):
        return UNDECIDED  # a blob may have another encoding
    kept = _DOCTYPE.match(text[:10_000]) is not None
    return None if kept else f"the page {uri!r:.80} begins with {text[:40]!r}"


@_app_rule(
    "ui-resource-format", "State a page's origins, permissions, domain and border as the schema has them.", *READ
)
@each(_contents)
def ext_app_metadata(_: Event, uri: str, content: dict[str, Any]) -> Opinion:
    ui = member_of(content, "_meta", "ui")
    if ui is None:
        return UNDECIDED
    csp, permissions = member_of(ui, "csp"), member_of(ui, "permissions")
    wrong = {
        "_meta.ui": not isinstance(ui, dict),
        "csp": csp is not None
        and not (isinstance(csp, dict) and all(_are_texts(csp.get(name, [])) for name in _DOMAINS)),
        "permissions": permissions is not None
        and not (
            isinstance(permissions, dict) and all(isinstance(permissions.get(name, {}), dict) for name in _PERMISSIONS)
        ),
        "domain": not isinstance(member_of(ui, "domain") or "", str),
        "prefersBorder": member_of(ui, "prefersBorder") not in (None, True, False),
    }
    names = ", ".join(name for name, is_wrong in wrong.items() if is_wrong)
    return f"the page {uri!r:.80} has invalid metadata: {names}" if names else None


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


@_app_rule("server-behavior", "Return content that has a meaning without the page.", *CALLED)
@each(about("tools/call"))
def ext_app_content(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    tool = connection.tools.get(str(asked.params.get("name")))
    # A call may ask for input, or become a task, first.
    if asked.result is None or page_of(tool) is None or "content" not in asked.result:
        return UNDECIDED
    return (
        None
        if items_of(asked.result, "content")
        else f"the result of the tool {asked.params['name']!r:.60} has no content"
    )
