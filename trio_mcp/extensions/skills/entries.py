"""The entry of a skill, as a client has checked it: what it lists is all that the client will use."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, overload

import attrs

from trio_mcp.extensions.skills.errors import SkillRefused
from trio_mcp.extensions.skills.rules import MAX_FILES, MAX_SIZE, file_path, frontmatter_problem, root_of

__all__ = ["RefusedEntry", "SkillEntry", "SkillList", "SkillResource", "read_entry"]

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class SkillResource(NamedTuple):
    """A file of a skill, as the skill's entry describes it.

    Attributes:
        path: The path of the file, relative to the root of the skill.
        uri: Its URI.
        digest: The SHA-256 of its bytes: ``"sha256:"`` and 64 hexadecimal digits.
        size: The number of its bytes.
    """

    path: str
    uri: str
    digest: str
    size: int


@attrs.frozen(slots=False)
class SkillEntry:
    """The entry of a skill, which keeps the rules of the extension. The server states it, and it proves nothing.

    A skill is identified by ``server`` and ``uri`` together. Its name is only a label, which others may have, too.

    Attributes:
        uri: The URI of the skill's ``SKILL.md``.
        frontmatter: All fields of the frontmatter, as JSON data. Nothing in it is acted on, ``allowed-tools`` included.
        resources: The files of the skill, in the order of the entry; None if the skill is dynamic.
        server: The server's name in the `ClientGroup`; None without a group.
    """

    uri: str
    frontmatter: Mapping[str, Any]
    resources: tuple[SkillResource, ...] | None
    server: str | None = None

    @property
    def name(self) -> str:
        """The name of the skill, which is not unique."""
        name: str = self.frontmatter["name"]
        return name

    @property
    def description(self) -> str:
        """The description of the skill."""
        description: str = self.frontmatter["description"]
        return description

    @property
    def root(self) -> str:
        """The URI of the skill's directory, without a slash at the end."""
        return root_of(self.uri)

    @property
    def is_dynamic(self) -> bool:
        """Whether the server makes the content for each reading, so that nothing of it can be verified."""
        return self.resources is None

    @property
    def size(self) -> int | None:
        """The size of all files together, in bytes; None if the skill is dynamic."""
        return None if self.resources is None else sum(each.size for each in self.resources)

    @cached_property
    def fingerprint(self) -> str | None:
        """A digest of everything in the entry, to bind an approval to; None if the skill is dynamic.

        It changes whenever a file is changed, added or removed (Content-bound approval). Two servers may serve the same
        skill, so keep the server's name with it.
        """
        if self.resources is None:
            return None
        files = sorted([each.uri, each.digest, each.size] for each in self.resources)
        whole = json.dumps([self.uri, self.frontmatter, files], sort_keys=True, separators=(",", ":"))
        return f"sha256:{hashlib.sha256(whole.encode()).hexdigest()}"


@attrs.frozen
class RefusedEntry:
    """An entry in a list that breaks a rule of the extension, and can't be used.

    Attributes:
        uri: The URI that it states; None if it states none.
        reason: The rule that it breaks.
        server: As in `SkillEntry`.
    """

    uri: str | None
    reason: str
    server: str | None = None


@attrs.frozen
class SkillList(Sequence[SkillEntry]):
    """The skills that servers have listed. A server may have more, which `get` finds by their URIs.

    Attributes:
        entries: The entries that can be used.
        refused: The others.
        errors: The exception for each server of a group that has returned no list, by the server's name.
    """

    entries: tuple[SkillEntry, ...]
    refused: tuple[RefusedEntry, ...] = ()
    errors: Mapping[str, Exception] = attrs.field(factory=dict)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[SkillEntry]:
        return iter(self.entries)

    @overload
    def __getitem__(self, index: int) -> SkillEntry: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[SkillEntry]: ...

    def __getitem__(self, index: int | slice) -> SkillEntry | Sequence[SkillEntry]:
        return self.entries[index]


def read_entry(data: Any, server: str | None) -> SkillEntry:
    """Check an entry that a server has sent.

    Args:
        data: The entry, as plain data.
        server: The server's name in its group, if any.

    Raises:
        SkillRefused: If it breaks a rule.
    """
    uri = data.get("uri") if isinstance(data, dict) else None
    if not isinstance(uri, str):
        raise SkillRefused("(an entry without a URI)", "each entry must be an object with a uri")
    root = root_of(uri)
    if not root:
        raise SkillRefused(uri, "the uri must be that of a SKILL.md in a directory")
    frontmatter = data.get("frontmatter")
    if not isinstance(frontmatter, dict):
        raise SkillRefused(uri, "the entry has no frontmatter, which must be an object")
    problem = frontmatter_problem(frontmatter, root.rpartition("/")[2])
    if problem is not None:
        raise SkillRefused(uri, problem)
    resources = data.get("resources")
    if resources == "dynamic":
        return SkillEntry(uri, frontmatter, None, server)
    if not isinstance(resources, list):
        raise SkillRefused(uri, "the entry has no resources, which must be an array or 'dynamic'")
    return SkillEntry(uri, frontmatter, _files(uri, root, resources), server)


def _files(uri: str, root: str, resources: list[Any]) -> tuple[SkillResource, ...]:
    if len(resources) > MAX_FILES:
        raise SkillRefused(uri, f"the skill has {len(resources)} files; {MAX_FILES} is the limit")
    found: dict[str, SkillResource] = {}
    total = 0
    for each in resources:
        one = _file(uri, root, each)
        # Two URIs of the same path, one of them with escapes, would be the same file to a host.
        if one.path in found:
            raise SkillRefused(uri, f"the file {one.uri[:500]!r} is listed twice")
        found[one.path] = one
        total += one.size
    if total > MAX_SIZE:
        raise SkillRefused(uri, f"the files have {total} bytes together; {MAX_SIZE} is the limit")
    if all(each.uri != uri for each in found.values()):
        raise SkillRefused(uri, "SKILL.md is not among the files")
    return tuple(found.values())


def _file(uri: str, root: str, data: Any) -> SkillResource:
    own = data.get("uri") if type(data) is dict else None
    if type(own) is not str:
        raise SkillRefused(uri, "each of the resources must be an object with a uri")
    path = file_path(root, own)
    if path is None:
        raise SkillRefused(uri, f"the file {own[:500]!r} is not in the directory of the skill")
    digest, size = data.get("digest"), data.get("size")
    if type(digest) is not str or _DIGEST.fullmatch(digest) is None:
        raise SkillRefused(uri, f"the file {own[:500]!r} has no digest of the form sha256:<64 hexadecimal digits>")
    if type(size) is not int or size < 0:
        raise SkillRefused(uri, f"the file {own[:500]!r} has no size, which must be a number of bytes")
    return SkillResource(path, own, digest, size)
