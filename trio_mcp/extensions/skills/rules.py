"""The rules for skills: names, descriptions, limits, and URIs, which servers and clients check."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from trio_mcp.uri_templates import MAX_URI

__all__ = [
    "DIRECTORY",
    "IDENTIFIER",
    "MAX_FILES",
    "MAX_SIZE",
    "METHODS",
    "SKILL_FILE",
    "SKILL_REVISIONS",
    "file_path",
    "file_uri",
    "frontmatter_problem",
    "name_problem",
    "optional_problem",
    "root_of",
]

IDENTIFIER: Final = "io.modelcontextprotocol/skills"
SKILL_REVISIONS: Final = ("2025-11-25", "2026-07-28")
"""The revisions in which the extension is declared: the one that it is specified for, and the one before."""
METHODS: Final = ("skills/list", "skills/get", "resources/directory/read")

SKILL_FILE: Final = "SKILL.md"
DIRECTORY: Final = "inode/directory"
"""The MIME type of a directory resource."""

# Section "Limits".
MAX_FILES: Final = 512
MAX_SIZE: Final = 16 * 1024 * 1024

# The rules of the Agent Skills specification for the fields `name`, `description` and `compatibility`.
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1024
MAX_COMPATIBILITY: Final = 500
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

# The characters of a path segment (RFC 3986, section 3.3), and those of a reg-name (section 3.2.2).
_IN_SEGMENT = "!$&'()*+,;=:@"
_IN_AUTHORITY = "!$&'()*+,;="
_PLAIN_PATH = re.compile(r"(?!\.)[A-Za-z0-9_.-]+(?:/(?!\.)[A-Za-z0-9_.-]+)*")
_TRIPLETS = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*")


def name_problem(name: object) -> str | None:
    """Return what is wrong with the name of a skill, or None."""
    if not isinstance(name, str):
        return "the name must be a string"
    if not 1 <= len(name) <= MAX_NAME:
        return f"the name has {len(name)} characters; it must have 1 to {MAX_NAME}"
    if not _NAME.fullmatch(name):
        return f"the name {name!r} may have only lower-case letters, digits, and single hyphens between them"
    return None


def frontmatter_problem(frontmatter: Mapping[str, Any], segment: str) -> str | None:
    """Return what is wrong with the required fields of a skill's frontmatter, or None.

    Args:
        frontmatter: The frontmatter.
        segment: The name of the skill's directory, or the last segment of its path in a URI.
    """
    for field in ("name", "description"):
        if field not in frontmatter:
            return f"the frontmatter has no {field}"
    name, description = frontmatter["name"], frontmatter["description"]
    problem = name_problem(name)
    if problem is not None:
        return problem
    if name != segment:
        return f"the name {name!r} differs from that of the directory, {segment[:MAX_NAME]!r}"
    if not isinstance(description, str):
        return "the description must be a string"
    if not description.strip():
        return "the description is empty"
    if len(description) > MAX_DESCRIPTION:
        return f"the description has {len(description)} characters; it may have at most {MAX_DESCRIPTION}"
    return None


def optional_problem(frontmatter: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the optional fields of a skill's frontmatter, or None.

    Servers check this, as some clients refuse such skills. Our client does not: it acts on none of these fields.
    """
    compatibility = frontmatter.get("compatibility", "x")
    if not isinstance(compatibility, str) or not 1 <= len(compatibility) <= MAX_COMPATIBILITY:
        return f"the field compatibility must be a string of 1 to {MAX_COMPATIBILITY} characters"
    metadata = frontmatter.get("metadata", {})
    if not isinstance(metadata, Mapping) or not all(isinstance(each, str) for each in metadata.values()):
        return "the field metadata must map names to strings: put numbers and the like in quotes"
    return None


def file_uri(base: str, path: str) -> str:
    """Return the URI of a file or directory.

    Args:
        base: What all URIs begin with, such as ``"skill://"``.
        path: The path below it, with ``/`` between its segments.
    """
    # The first segment after the scheme is the authority, in which fewer characters are allowed.
    first, slash, rest = path.partition("/")
    safe = _IN_AUTHORITY if base.endswith("://") else _IN_SEGMENT
    return base + quote(first, safe=safe) + slash + quote(rest, safe=_IN_SEGMENT + "/")


def root_of(uri: str) -> str:
    """Return the URI of a skill's root directory, given that of its ``SKILL.md``; "" if it is not such a URI."""
    root, slash, last = uri.rpartition("/")
    return root if last == SKILL_FILE and slash and not root.endswith("/") and len(uri) <= MAX_URI else ""


def file_path(root: str, uri: str) -> str | None:
    """Return the path of a file relative to the root of its skill; None if it is not a file in that directory.

    Args:
        root: The URI of the root directory.
        uri: The URI of the file.
    """
    if len(uri) > MAX_URI or not uri.startswith(root) or uri[len(root) : len(root) + 1] != "/":
        return None
    rest = uri[len(root) + 1 :]
    if _PLAIN_PATH.fullmatch(rest):  # almost every path
        return rest
    if "%" in rest:
        if not _TRIPLETS.fullmatch(rest):
            return None
        try:
            parts = [unquote_to_bytes(part).decode() for part in rest.split("/")]
        except UnicodeDecodeError:
            return None
    elif "?" in rest or "#" in rest:
        return None
    else:
        parts = rest.split("/")
    # A host may write the files to a disk: no segment may lead elsewhere, there or on another system.
    for part in parts:
        if part in ("", ".", "..") or "/" in part or "\\" in part or "\0" in part:
            return None
    return "/".join(parts)
