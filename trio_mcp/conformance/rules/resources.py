"""Rules for resources."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.rules.common import asked_about, code_of, declares, is_unknown
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest
from trio_mcp.conformance.rules.model import Verdict, broken, judged
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import error_codes
from trio_mcp.uri_templates import UriTemplate

__all__ = ["blocks_of", "is_base64"]

READING: Final = ("read-resource", "read-template")
UNKNOWN: Final = ("read-unknown-resource",)


def is_base64(value: Any) -> bool:
    """Return whether a value is a text in Base64 (RFC 4648, section 4)."""
    try:
        # Line breaks are what MIME puts into Base64 (RFC 2045, section 6.8).
        text = "".join(value.split()) if isinstance(value, str) else "?"
        base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def blocks_of(result: dict[str, Any] | None, *fields: str) -> Iterator[dict[str, Any]]:
    """Yield the content of results: what a list holds, or what stands in its messages."""
    for field in fields:
        found = (result or {}).get(field)
        for each in found if isinstance(found, list) else ():
            inner = each.get("content") if isinstance(each, dict) and field == "messages" else each
            for block in inner if isinstance(inner, list) else [inner]:
                if isinstance(block, dict):
                    yield block


def _blobs(result: dict[str, Any] | None) -> Iterator[Any]:
    for block in blocks_of(result, "content", "contents", "messages"):
        resource = block.get("resource")
        # In `resources/read` the blob is in the block itself, embedded in a message one level below.
        for holder in (block, resource if isinstance(resource, dict) else {}):
            if "blob" in holder:
                yield holder["blob"]
        if block.get("type") in ("image", "audio") and "data" in block:
            yield block["data"]


@stated_rule(sentence="Encode binary content as Base64.", moves=(*READING, "call-tool", "get-prompt"))
def blob_is_base64(history: History) -> Iterator[Verdict]:
    for _, asked in history.requests("resources/read", "tools/call", "prompts/get"):
        for blob in _blobs(asked.result):
            yield judged(is_base64(blob), asked.answers[0], f"{blob!r:.60} is not Base64")


# A scheme, and nothing that a URI can't contain (RFC 3986, appendix A).
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")


# The schemes that the page itself describes. Paths and links often have letters beyond ASCII, as people write them.
_COMMON: Final = ("file", "git", "http", "https")


@stated_rule(since="2025-06-18", moves=("list-all", "next-page"))
def resource_uri_valid(history: History) -> Iterator[Verdict]:
    for _, asked in history.requests("resources/list"):
        items = (asked.result or {}).get("resources")
        for item in items if isinstance(items, list) else ():
            uri = item.get("uri") if isinstance(item, dict) else None
            # The text is about schemes of one's own.
            if isinstance(uri, str) and (uri.isascii() or uri.partition(":")[0].lower() not in _COMMON):
                yield judged(_URI.fullmatch(uri) is not None, asked.answers[0], f"{uri!r:.100} is not a URI")


def _missing(history: History) -> Iterator[tuple[RecordedRequest, Event]]:
    """Yield the answered requests for resources that surely don't exist."""
    for connection, asked, answer in asked_about(history, "resources/read"):
        uri = asked.params.get("uri")
        if not isinstance(uri, str) or not declares(connection.server_capabilities, "resources"):
            continue
        # A text that isn't a URI may be refused for that, with another code; and a list that wasn't read to its end
        # proves nothing.
        if _URI.fullmatch(uri) is None or not is_unknown(connection, "resources/list", uri):
            continue
        # A resource that a template describes may exist, and contents show that it does.
        found = (asked.result or {}).get("contents")
        if not found and not _may_match(connection, uri):
            yield asked, answer


def _may_match(connection: Connection, uri: str) -> bool:
    if not is_unknown(connection, "resources/templates/list", None):
        return True  # the templates are not all known
    for template in connection.listed["resources/templates/list"]:
        # A template that can't be read here may match anything.
        try:
            if UriTemplate(template).match(uri) is not None:
                return True
        except (TypeError, ValueError):
            return True
        # Servers match more generously than others: the same scheme is enough for a doubt.
        if template.partition(":")[0] == uri.partition(":")[0] or template.startswith("{"):
            return True
    return False


def _not_found(asked: RecordedRequest, answer: Event, wanted: int) -> Verdict:
    code = code_of(asked)
    uri = asked.params.get("uri")
    if asked.result is not None:
        # A server may ask the user something, such as who it is, before it looks for the resource.
        if asked.result.get("resultType") == "input_required":
            return Verdict(answer)
        return broken(answer, f"{uri!r:.60} does not exist, but has a result")
    return judged(code == wanted, answer, f"{uri!r:.60} does not exist, but was answered with {code}, not {wanted}")


@stated_rule(sentence="Answer -32602 for a resource that doesn't exist, never empty contents.", moves=UNKNOWN)
def resource_not_found(history: History) -> Iterator[Verdict]:
    for asked, answer in _missing(history):
        yield _not_found(asked, answer, error_codes.INVALID_PARAMS)


@stated_rule(moves=UNKNOWN)
def resource_not_found_code(history: History) -> Iterator[Verdict]:
    for asked, answer in _missing(history):
        # Most peers send -32602 in all revisions, the code of 2026-07-28. Until then the text names -32002, as a
        # SHOULD.
        yield _not_found(asked, answer, error_codes.RESOURCE_NOT_FOUND_LEGACY)


@stated_rule(moves=("read-odd-uri",))
def malformed_uri_refused(history: History) -> Iterator[Verdict]:
    for connection, asked, answer in asked_about(history, "resources/read"):
        uri = asked.params.get("uri")
        # One that the server lists itself is at fault elsewhere.
        if not isinstance(uri, str) or _URI.fullmatch(uri) is not None or uri in connection.listed["resources/list"]:
            continue
        # A client may fill in a template without encoding the values, and then the server rightly knows the result.
        if not any(_matches(template, uri) for template in connection.listed["resources/templates/list"]):
            # Which error to send isn't said, and empty contents give nothing away, so only real contents count.
            served = bool((asked.result or {}).get("contents"))
            yield judged(not served, answer, f"{uri!r:.60} is not a URI, but has contents")


def _matches(template: str, uri: str) -> bool:
    try:
        return UriTemplate(template).match(uri) is not None
    except (TypeError, ValueError):
        return True


# The line for root is in this file on every POSIX system. Any other text may be what the server means by the URI.
_PASSWD: Final = re.compile(r"^root:[^:\n]*:0:0:", re.MULTILINE)


@stated_rule(moves=("read-odd-uri",))
def path_traversal_refused(history: History) -> Iterator[Verdict]:
    for connection, asked, answer in asked_about(history, "resources/read"):
        uri = asked.params.get("uri")
        # A server that serves every file of the system lets nothing climb out.
        if any(template.startswith("file:///{") for template in connection.listed["resources/templates/list"]):
            continue
        if isinstance(uri, str) and uri.endswith("/etc/passwd") and (".." in uri or "%2e" in uri):
            texts = [each.get("text") for each in blocks_of(asked.result, "contents")]
            read = any(isinstance(text, str) and _PASSWD.search(text) for text in texts)
            yield judged(not read, answer, f"{uri!r:.60} gives the passwords of the system")
