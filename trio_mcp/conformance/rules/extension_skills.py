"""Rules for servers with the skills extension (``io.modelcontextprotocol/skills``), which needs revision 2026-07-28."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import attrs

from trio_mcp.conformance.members import items_of, member_of, object_of, objects_of
from trio_mcp.conformance.rules.common import MODERN, code_of, code_or_result, declares, is_count, wrong_members
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest
from trio_mcp.conformance.rules.model import Judge, Rule, rule
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, about, each
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import error_codes

__all__ = ["EXTENSION", "LIST", "NO_SKILL", "SKILL_FILE", "files_of", "reads_directories"]

EXTENSION: Final = "io.modelcontextprotocol/skills"
SKILL_FILE: Final = "/SKILL.md"
DIRECTORY: Final = "inode/directory"
NO_SKILL: Final = "skill://no-such-skill"
"""How the URIs of skills begin that the kit makes up."""

_about: Final = partial(about, extension=EXTENSION)
"""Returns a function that yields the faultless requests of some methods to servers with the extension."""

LIST: Final = ("skills", "uri")
"""The member of the result of ``skills/list`` that has the entries, and the member of an entry that names it."""

MOST_FILES: Final = 512
MOST_BYTES: Final = 16 * 2**20
"""The limits that hosts must support at least, and servers should not exceed."""

READ: Final = ("ext-skill-read",)
ENTRIES: Final = ("ext-skill-listed", *READ)
UNKNOWN: Final = ("ext-skill-unknown",)
DIRECTORIES: Final = ("ext-skill-directory",)

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

Files: TypeAlias = dict[str, tuple[str, int]]
"""The digest and the size of each file, by URI."""


@attrs.frozen(eq=False)
class _Told:
    """A skill's entry in a response of a server."""

    asked: RecordedRequest
    entry: dict[str, Any]


def files_of(entry: Mapping[str, Any]) -> Files:
    """Return the files of a skill's entry, without those that are malformed; none if its content is dynamic."""
    return {
        file["uri"]: (file["digest"], file["size"])
        for file in objects_of(entry.get("resources"))
        if isinstance(file.get("uri"), str) and isinstance(file.get("digest"), str) and type(file.get("size")) is int
    }


def _given(history: History) -> Iterator[tuple[Event, Any]]:
    """Yield what a server gives as a skill's entry, whatever it is, preceded by the response that has it."""
    for answer, _, asked in _about("skills/list", "skills/get")(history):
        if asked.method == "skills/list":
            yield from ((answer, item) for item in items_of(asked.result, "skills"))
        elif asked.result is not None:
            yield answer, asked.result.get("skill")


def _entries(history: History) -> Iterator[tuple[Event, dict[str, Any]]]:
    """Yield the entries that are objects and have a URI; the others are for `ext_skill_entry`."""
    return ((answer, item) for answer, item in _given(history) if isinstance(member_of(item, "uri"), str))


def _told(connection: Connection) -> list[_Told]:
    """Return the entries of a connection, in the order of the responses."""

    def find() -> list[_Told]:
        found = []
        for asked in connection.requests:
            if asked.method == "skills/list":
                found += [_Told(asked, item) for item in objects_of(asked.result, "skills")]
            elif asked.method == "skills/get" and asked.result is not None:
                found.append(_Told(asked, object_of(asked.result.get("skill"))))
        return sorted(found, key=lambda each: connection.position(each.asked.answers[0]))

    # All entries are kept because several rules need them, and finding them takes a pass over all messages.
    return connection.kept("skills", connection.events[0], find)


def _meets(folder: str, uri: str) -> bool:
    """Return whether a URI is that of a skill's directory, or of something in it or above it."""
    return folder == uri or uri.startswith(f"{folder}/") or folder.startswith(f"{uri}/")


def _certain(connection: Connection, asked: RecordedRequest) -> Files:
    """Return the files about a request's URI that a server certainly had while it served the request.

    These are the files that it listed before and after.
    """
    begin, end = connection.position(asked.event), connection.position(asked.answers[0])
    before: dict[Any, Files] = {}
    after: dict[Any, Files] = {}
    wanted = str(asked.params.get("uri"))
    for told in _told(connection):
        uri = told.entry.get("uri")
        if not isinstance(uri, str) or not _meets(uri.removesuffix(SKILL_FILE), wanted):
            continue  # a server may have hundreds of skills
        if connection.position(told.asked.answers[0]) < begin:
            before[uri] = files_of(told.entry)
        elif connection.position(told.asked.event) > end:
            after.setdefault(uri, files_of(told.entry))
    return {
        file: details
        for uri, files in before.items()
        for file, details in files.items()
        if after.get(uri, {}).get(file) == details
    }


def _skill_rule(section: str, sentence: str, *moves: str, level: Any = "MUST") -> Callable[[Judge], Rule]:
    return rule(level, "server", f"extensions/skills#{section}", sentence, revisions=MODERN, moves=moves)


# --- capabilities -----------------------------------------------------------------------------------------------------


@_skill_rule("capability-negotiation", "Declare the capability `resources` along with the extension.", *ENTRIES)
@each(_about("skills/list", "skills/get"))
def ext_skill_resources(_: Event, connection: Connection, _asked: RecordedRequest) -> Opinion:
    kept = declares(connection.server_capabilities, "resources")
    return None if kept else "the server declares skills, but not the capability resources"


@_skill_rule(
    "capability-negotiation", "Serve the methods that the extension, as declared, has.", *ENTRIES, *DIRECTORIES
)
@each(_about("skills/list", "skills/get", "resources/directory/read"))
def ext_skill_methods(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    if asked.method == "resources/directory/read" and not reads_directories(connection):
        return UNDECIDED
    missing = code_of(asked) == error_codes.METHOD_NOT_FOUND
    return f"the server declares skills, but does not know {asked.method}" if missing else None


def reads_directories(connection: Connection) -> bool:
    """Return whether a server declares that it reads directories."""
    return member_of(connection.server_capabilities, "extensions", EXTENSION, "directoryRead") is True


@_skill_rule(
    "listing-skills", "Give results the `resultType` `complete`, and say how long entries may be cached.", *ENTRIES
)
@each(_about("skills/list", "skills/get", "resources/directory/read"))
def ext_skill_result(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    result = asked.result
    if result is None:
        return UNDECIDED
    wrong = {"resultType": result.get("resultType") != "complete"}
    if asked.method != "resources/directory/read":
        wrong["ttlMs"] = not is_count(result.get("ttlMs"))
        wrong["cacheScope"] = result.get("cacheScope") not in ("public", "private")
    return wrong_members(result, wrong)


# --- entries ----------------------------------------------------------------------------------------------------------


@_skill_rule(
    "skill-entries",
    "Describe a skill by its URI, its frontmatter, and its files with their digests and sizes.",
    *ENTRIES,
)
@each(_given)
def ext_skill_entry(_: Event, given: Any) -> Opinion:
    if not isinstance(given, dict):
        return f"the entry of a skill is {given!r:.60}"
    wrong = {
        "uri": not str(given.get("uri")).endswith(SKILL_FILE),
        "frontmatter": not all(
            isinstance(member_of(given, "frontmatter", name), str) for name in ("name", "description")
        ),
        "resources": given.get("resources") != "dynamic" and not isinstance(given.get("resources"), list),
    }
    return wrong_members(given, wrong) or next(filter(None, map(_flaw, items_of(given, "resources"))), None)


def _flaw(file: Any) -> str | None:
    """Return what is wrong with the entry of a file."""
    if not isinstance(file, dict):
        return f"the entry of a file is {file!r:.60}"
    wrong = {
        "uri": not isinstance(file.get("uri"), str),
        "digest": _DIGEST.fullmatch(str(file.get("digest"))) is None,
        "size": not is_count(file.get("size")),
    }
    return wrong_members(file, wrong)


@_skill_rule(
    "resource-mapping", "Name a skill as its directory: 1 to 64 of `a-z`, `0-9`, and single hyphens.", *ENTRIES
)
@each(_entries)
def ext_skill_name(_: Event, entry: dict[str, Any]) -> Opinion:
    name = member_of(entry, "frontmatter", "name")
    if not isinstance(name, str) or not entry["uri"].endswith(SKILL_FILE):
        return UNDECIDED  # which is for `ext_skill_entry`
    if _NAME.fullmatch(name) is None or len(name) > 64:
        return f"{name!r:.80} is not the name of a skill"
    last = entry["uri"].removesuffix(SKILL_FILE).rpartition("/")[2]
    return None if last == name else f"the skill at {entry['uri']!r:.80} is named {name!r}"


@_skill_rule("resources", "List each file of a skill once, its `SKILL.md` among them, and no file of others.", *ENTRIES)
@each(_entries)
def ext_skill_files(_: Event, entry: dict[str, Any]) -> Opinion:
    if not isinstance(entry.get("resources"), list):
        return UNDECIDED
    uris = [file["uri"] for file in objects_of(entry["resources"]) if isinstance(file.get("uri"), str)]
    folder = entry["uri"].removesuffix(SKILL_FILE) + "/"
    twice = next((uri for uri in uris if uris.count(uri) > 1), None) if len(set(uris)) < len(uris) else None
    outside = next((uri for uri in uris if not uri.startswith(folder) or ".." in uri.split("/")), None)
    if entry["uri"] not in uris:
        return f"the files of the skill at {entry['uri']!r:.80} lack its SKILL.md"
    if twice is not None:
        return f"{twice!r:.80} is listed more than once"
    return None if outside is None else f"{outside!r:.80} is not in the directory of the skill at {entry['uri']!r:.80}"


@_skill_rule("limits", "Serve no skill of more than 512 files or 16 MiB.", *ENTRIES, level="SHOULD")
@each(_entries)
def ext_skill_limits(_: Event, entry: dict[str, Any]) -> Opinion:
    if not isinstance(entry.get("resources"), list):
        return UNDECIDED
    files, size = len(entry["resources"]), sum(size for _, size in files_of(entry).values())
    kept = files <= MOST_FILES and size <= MOST_BYTES
    return None if kept else f"the skill at {entry['uri']!r:.80} has {files} files, and {size} bytes"


@_skill_rule("getting-a-skill", "Answer `skills/get` for each skill that is served.", *READ)
@each(_about("skills/get"))
def ext_skill_found(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    uri = asked.params.get("uri")
    begin, end = connection.position(asked.event), connection.position(asked.answers[0])
    listed = [told for told in _told(connection) if told.entry.get("uri") == uri and told.asked is not asked]
    # The skill may have been added, or removed, in between.
    before = any(connection.position(told.asked.answers[0]) < begin for told in listed)
    after = any(connection.position(told.asked.event) > end for told in listed)
    if asked.result is not None:
        found = member_of(asked.result, "skill", "uri")
        return None if found == uri else f"the entry of {uri!r:.80} is that of {found!r:.80}"
    if not (before and after):
        return UNDECIDED
    return f"the skill at {uri!r:.80} is served, but skills/get was answered with {code_of(asked)}"


@_skill_rule("getting-a-skill", "Refuse `skills/get` with -32602 for what is not a skill.", *UNKNOWN)
@each(_about("skills/get"))
def ext_skill_unknown(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    if not str(asked.params.get("uri")).startswith(NO_SKILL):
        return UNDECIDED
    kept = code_of(asked) == error_codes.INVALID_PARAMS
    problem = f"skills/get of a skill that does not exist was answered with {code_or_result(asked)}, not -32602"
    return None if kept else problem


# --- content ----------------------------------------------------------------------------------------------------------


@_skill_rule("verification-on-read", "Serve each file with the digest and the size that its entry has.", *READ)
@each(_about("resources/read"))
def ext_skill_content(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    listed = _certain(connection, asked).get(str(asked.params.get("uri")))
    if listed is None:
        return UNDECIDED
    contents = objects_of(asked.result, "contents")
    raw = _bytes_of(contents[0]) if len(contents) == 1 else None
    if raw is None:
        return f"{asked.params['uri']!r:.80} is listed, but reading it gave no content: {code_or_result(asked)}"
    digest, size = f"sha256:{hashlib.sha256(raw).hexdigest()}", len(raw)
    kept = (digest, size) == listed
    return (
        None if kept else f"{asked.params['uri']!r:.80} has {size} bytes and {digest}, not {listed[1]} and {listed[0]}"
    )


def _bytes_of(content: dict[str, Any]) -> bytes | None:
    if isinstance(text := content.get("text"), str):
        return text.encode(errors="surrogatepass")
    try:
        return base64.b64decode(str(content["blob"]), validate=True)
    except (KeyError, binascii.Error, ValueError):
        return None


# --- directories ------------------------------------------------------------------------------------------------------


def _directories(history: History) -> Iterator[tuple[Event, Files, str, RecordedRequest]]:
    """Yield the first pages of directories that were asked for where they are served, and what certainly was there."""
    for answer, connection, asked in _about("resources/directory/read")(history):
        uri = asked.params.get("uri")
        if reads_directories(connection) and isinstance(uri, str) and "cursor" not in asked.params:
            yield answer, _certain(connection, asked), uri, asked


@_skill_rule("reading-directories", "Read each directory of a skill.", *DIRECTORIES)
@each(_directories)
def ext_skill_directory(_: Event, files: Files, uri: str, asked: RecordedRequest) -> Opinion:
    if not any(file.startswith(f"{uri}/") for file in files):
        return UNDECIDED
    return None if asked.result is not None else f"the directory {uri!r:.80} was answered with {code_of(asked)}"


@_skill_rule("reading-directories", "Refuse with -32602 to read what is not a directory.", *DIRECTORIES, *UNKNOWN)
@each(_directories)
def ext_skill_no_directory(_: Event, files: Files, uri: str, asked: RecordedRequest) -> Opinion:
    if uri not in files and not uri.startswith(NO_SKILL):
        return UNDECIDED
    kept = code_of(asked) == error_codes.INVALID_PARAMS
    return (
        None if kept else f"{uri!r:.80} is not a directory, but was answered with {code_or_result(asked)}, not -32602"
    )


@_skill_rule(
    "reading-directories", "List what is directly in a directory, with `inode/directory` for directories.", *DIRECTORIES
)
@each(_directories)
def ext_skill_children(_: Event, files: Files, uri: str, asked: RecordedRequest) -> Opinion:
    if asked.result is None:
        return UNDECIDED
    found = {str(child.get("uri")): child.get("mimeType") for child in objects_of(asked.result, "resources")}
    inside = f"{uri}/"
    known = {inside + file.removeprefix(inside).partition("/")[0] for file in files if file.startswith(inside)}
    missing = next(iter(known - found.keys()), None) if "nextCursor" not in asked.result else None
    deep = next((child for child in found if not child.startswith(inside) or "/" in child[len(inside) :]), None)
    if missing is not None:
        return f"{missing!r:.80} is in the directory {uri!r:.80}, but is not listed there"
    if deep is not None:
        return f"{deep!r:.80} is not directly in the directory {uri!r:.80}"
    wrong = next((child for child in known & found.keys() if (found[child] == DIRECTORY) == (child in files)), None)
    return None if wrong is None else f"{wrong!r:.80} has the MIME type {found[wrong]!r:.60}"
