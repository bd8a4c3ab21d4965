"""Rules for resources: their URIs and contents, and the errors for faulty requests."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.members import items_of, member_of
from trio_mcp.conformance.rules.common import code_of, declares, is_unknown
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest
from trio_mcp.conformance.rules.model import Verdict, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, about, answered, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import error_codes
from trio_mcp.uri_templates import UriTemplate

__all__ = ["blocks_of", "is_base64"]

READING: Final = ("read-resource", "read-template")
UNKNOWN: Final = ("read-unknown-resource",)


def is_base64(value: Any) -> bool:
    """Return whether a value is a string in Base64 (RFC 4648, section 4)."""
    try:
        # MIME puts line breaks into Base64 (RFC 2045, section 6.8), so whitespace is removed.
        text = "".join(value.split()) if isinstance(value, str) else "?"
        base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def blocks_of(result: dict[str, Any] | None, *fields: str) -> Iterator[dict[str, Any]]:
    """Yield the content blocks in these fields of a result; for ``messages``, the blocks of each message."""
    for field in fields:
        for item in items_of(result, field):
            inner = member_of(item, "content") if field == "messages" else item
            blocks = inner if isinstance(inner, list) else [inner]
            yield from (block for block in blocks if isinstance(block, dict))


def _blobs(history: History) -> Iterator[tuple[Event, Any]]:
    """Yield each piece of binary content, preceded by the response that contains it."""
    for answer, _, asked in answered("resources/read", "tools/call", "prompts/get")(history):
        for block in blocks_of(asked.result, "content", "contents", "messages"):
            # In `resources/read` the blob is a member of the block; in an embedded resource, a member of the block's
            # `resource`.
            for holder in (block, member_of(block, "resource")):
                if isinstance(holder, dict) and "blob" in holder:
                    yield answer, holder["blob"]
            if block.get("type") in ("image", "audio") and "data" in block:
                yield answer, block["data"]


@stated_rule(sentence="Encode binary content as Base64.", moves=(*READING, "call-tool", "get-prompt"))
@each(_blobs)
def blob_is_base64(_: Event, blob: Any) -> Opinion:
    return None if is_base64(blob) else f"{blob!r:.60} is not Base64"


# A scheme, followed only by characters that a URI may contain (RFC 3986, appendix A).
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")


# These are the schemes that the specification's page on resources describes. Their URIs are judged only if they are
# ASCII, because people often write paths and links with other letters.
_COMMON: Final = ("file", "git", "http", "https")


@stated_rule(moves=("list-all", "next-page"))
def resource_uri_valid(history: History) -> Iterator[Verdict]:
    for answer, _, asked in answered("resources/list")(history):
        for item in items_of(asked.result, "resources"):
            uri = member_of(item, "uri")
            # The specification's section is about custom schemes, so a URI with a common scheme is not judged if it
            # contains letters beyond ASCII.
            if isinstance(uri, str) and (uri.isascii() or uri.partition(":")[0].lower() not in _COMMON):
                yield judged(_URI.fullmatch(uri) is not None, answer, f"{uri!r:.100} is not a URI")


def _missing(history: History) -> Iterator[tuple[Event, RecordedRequest]]:
    """Yield the requests for resources that certainly don't exist, each preceded by its response."""
    for answer, connection, asked in about("resources/read")(history):
        uri = asked.params.get("uri")
        if not isinstance(uri, str) or not declares(connection.server_capabilities, "resources"):
            continue
        # A string that isn't a URI may be refused for that reason, with another code. And a URI is certainly unknown
        # only if the list of resources was read to its end.
        if _URI.fullmatch(uri) is None or not is_unknown(connection, "resources/list", uri):
            continue
        # A resource may exist if a template matches its URI, and certainly exists if the response has contents.
        if not member_of(asked.result, "contents") and not _may_match(connection, uri):
            yield answer, asked


def _may_match(connection: Connection, uri: str) -> bool:
    if not is_unknown(connection, "resources/templates/list", None):
        return True  # the URI may match a template that was not listed
    # Some servers match URIs to templates more generously than the kit does, so a URI may exist if any template has the
    # same scheme.
    return any(
        _matches(template, uri) or template.partition(":")[0] == uri.partition(":")[0] or template.startswith("{")
        for template in connection.listed["resources/templates/list"]
    )


def _matches(template: str, uri: str) -> bool:
    # A template that this library can't parse may match anything.
    try:
        return UriTemplate(template).match(uri) is not None
    except (TypeError, ValueError):
        return True


def _not_found(asked: RecordedRequest, wanted: int) -> Opinion:
    code = code_of(asked)
    uri = asked.params.get("uri")
    if asked.result is not None:
        # A server may ask the user for something, such as a login, before it looks for the resource.
        asking = asked.result.get("resultType") == "input_required"
        return None if asking else f"{uri!r:.60} does not exist, but reading it gave a result"
    return None if code == wanted else f"{uri!r:.60} does not exist, but reading it gave the error {code}, not {wanted}"


@stated_rule(sentence="Answer -32602 for a resource that doesn't exist, never empty contents.", moves=UNKNOWN)
@each(_missing)
def resource_not_found(_: Event, asked: RecordedRequest) -> Opinion:
    return _not_found(asked, error_codes.INVALID_PARAMS)


@stated_rule(moves=UNKNOWN)
@each(_missing)
def resource_not_found_code(_: Event, asked: RecordedRequest) -> Opinion:
    # Earlier revisions say that the code SHOULD be -32002, but most servers send -32602, the code of 2026-07-28, in all
    # revisions.
    return _not_found(asked, error_codes.RESOURCE_NOT_FOUND_LEGACY)


@stated_rule(moves=("read-odd-uri",))
@each(about("resources/read"))
def malformed_uri_refused(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    uri = asked.params.get("uri")
    # `resource_uri_valid` judges a malformed URI that the server lists itself.
    if not isinstance(uri, str) or _URI.fullmatch(uri) is not None or uri in connection.listed["resources/list"]:
        return UNDECIDED
    # A client may fill in a template without encoding the values, and then the server rightly accepts the resulting
    # URI.
    if any(_matches(template, uri) for template in connection.listed["resources/templates/list"]):
        return UNDECIDED
    # The specification doesn't say which error to send, and a response without contents reveals nothing, so only a
    # response with contents is a fault.
    return f"{uri!r:.60} is not a URI, but reading it gave contents" if member_of(asked.result, "contents") else None


# /etc/passwd has this line for root on every POSIX system. A response with any other text may be what the server means
# by the URI.
_PASSWD: Final = re.compile(r"^root:[^:\n]*:0:0:", re.MULTILINE)


@stated_rule(moves=("read-odd-uri",))
@each(about("resources/read"))
def path_traversal_refused(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    uri = asked.params.get("uri")
    # If a server offers every file of the system, there is no folder to climb out of.
    if any(template.startswith("file:///{") for template in connection.listed["resources/templates/list"]):
        return UNDECIDED
    if not isinstance(uri, str) or not uri.endswith("/etc/passwd") or not (".." in uri or "%2e" in uri):
        return UNDECIDED
    texts = [each.get("text") for each in blocks_of(asked.result, "contents")]
    read = any(isinstance(text, str) and _PASSWD.search(text) for text in texts)
    return f"reading {uri!r:.60} gave the system's password file" if read else None
