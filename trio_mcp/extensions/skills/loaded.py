"""A skill that a client has loaded: it holds the entry, and reads only what the entry lists."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, Unpack

import trio

from trio_mcp._keywords import refuse_unknown
from trio_mcp.extensions.skills.entries import SkillEntry, SkillResource
from trio_mcp.extensions.skills.errors import SkillMismatch, SkillRefused
from trio_mcp.extensions.skills.frontmatter import FrontmatterError, difference, read_frontmatter, split
from trio_mcp.extensions.skills.rules import MAX_SIZE, SKILL_FILE, file_path, file_uri
from trio_mcp.session.calls import CallLimits
from trio_mcp.types.resources import BlobResourceContents, ReadResourceResult, TextResourceContents

__all__ = ["LoadedSkill", "Reader", "load_skill"]

Reader: TypeAlias = Callable[[str, CallLimits], Awaitable[ReadResourceResult]]
"""A function ``(uri, limits)`` that reads a resource of the server that the skill came from."""


SHORT = 4096
"""The size of a frontmatter up to which it is read in the event loop, in bytes (arbitrary)."""


class LoadedSkill:
    """A skill whose ``SKILL.md`` has been fetched and verified: see `ClientSkills.load`.

    It holds the entry from which it was loaded, whatever the server lists later. Its text comes from the server: say so
    to the model, treat it as untrusted, and run nothing that it names without the user's approval of this skill.

    Attributes:
        entry: The entry.
        text: The whole ``SKILL.md``.
        body: The ``SKILL.md`` without its frontmatter.
    """

    def __init__(self, entry: SkillEntry, data: bytes, read: Reader) -> None:
        self.entry = entry
        self.text = data.decode()
        self.body = split(data)[1].decode()
        self._read = read
        self._listed = {} if entry.resources is None else {each.path: each for each in entry.resources}
        # The content that has been verified is not fetched again.
        self._kept = {SKILL_FILE: data}
        self._fetched = len(data)

    @property
    def server(self) -> str | None:
        """The server's name in the `ClientGroup` that the skill came from; None without a group."""
        return self.entry.server

    def files(self, directory: str = "") -> list[str]:
        """Return the paths of the skill's files, from the entry: nothing is sent.

        Args:
            directory: A directory of the skill, by its path, whose files are returned, at any depth.

        Raises:
            SkillMismatch: If there is no such directory in the entry.
            SkillRefused: If the skill is dynamic, and so has no list of files; see `ClientSkills.directory`.
        """
        if self.entry.is_dynamic:
            raise SkillRefused(self.entry.uri, "the skill is dynamic, so its entry lists no files")
        below = self._path(directory)
        found = [path for path in self._listed if not below or path.startswith(f"{below}/")]
        if not found:
            raise SkillMismatch(directory, "the entry of the skill has no such directory")
        return found

    def resolve(self, reference: str) -> str:
        """Return the URI of a file, given its path or a reference in the skill's text.

        A reference is relative to the root of the skill, as a path of a file system.

        Args:
            reference: The path, such as ``"references/GUIDE.md"``.

        Raises:
            SkillMismatch: If it leads out of the skill, or the entry does not list such a file.
        """
        path = self._path(reference)
        if self.entry.is_dynamic:
            uri = file_uri(f"{self.entry.root}/", path)
            if not path or file_path(self.entry.root, uri) is None:
                raise SkillMismatch(reference, "this is not a path of a file")
            return uri
        return self._resource(path, reference).uri

    async def read(self, path: str, **limits: Unpack[CallLimits]) -> bytes:
        """Return the content of a file, once it has been verified. A file is fetched only the first time.

        Args:
            path: The path of the file, or a reference to it, as in `resolve`.
            limits: ``timeout`` and so on, as in `Client.read_resource`.

        Returns:
            The bytes that the entry describes. Those of a dynamic skill are not verified, and are fetched each time.

        Raises:
            SkillMismatch: If the entry does not list the file, or the content is not what the entry describes.
            McpError: If the server refuses.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        if limits:
            refuse_unknown(LoadedSkill.read, limits, CallLimits)
        await trio.lowlevel.checkpoint()
        if self.entry.is_dynamic:
            return await self._read_dynamic(self.resolve(path), limits)
        resource = self._resource(self._path(path), path)
        kept = self._kept.get(resource.path)
        if kept is None:
            data = _verified(await self._read(resource.uri, limits), resource)
            kept = self._kept[resource.path] = data
        return kept

    async def read_text(self, path: str, **limits: Unpack[CallLimits]) -> str:
        """Return the content of a file as text, as `read` returns its bytes.

        Raises:
            UnicodeDecodeError: If it is not UTF-8.

        Further errors and cancellation as in `read`.
        """
        return (await self.read(path, **limits)).decode()

    async def _read_dynamic(self, uri: str, limits: CallLimits) -> bytes:
        data = _content(await self._read(uri, limits), uri)
        self._fetched += len(data)
        if self._fetched > MAX_SIZE:
            raise SkillMismatch(uri, f"more than {MAX_SIZE} bytes have been read of this skill, which is the limit")
        return data

    def _resource(self, path: str, reference: str) -> SkillResource:
        resource = self._listed.get(path)
        if resource is None:
            # An unlisted file is a change to the skill (The Acting Window and the Held Entry).
            raise SkillMismatch(reference, "the entry of the skill does not list such a file; get the entry again")
        return resource

    def _path(self, reference: str) -> str:
        """Return a reference as a path without ``.`` and ``..``.

        Raises:
            SkillMismatch: If it leads out of the skill.
        """
        if not isinstance(reference, str):
            raise TypeError(f"a path must be a string, got {reference!r}")
        parts: list[str] = []
        for part in reference.split("/"):
            if part == ".." and parts:
                parts.pop()
            elif part == "..":
                raise SkillMismatch(reference, "the path leads out of the skill")
            elif part != "." and part:
                parts.append(part)
        if reference.startswith("/"):
            raise SkillMismatch(reference, "the path is absolute; references are relative to the root of the skill")
        return "/".join(parts)


async def load_skill(entry: SkillEntry, read: Reader, allow_dynamic: bool, limits: CallLimits) -> LoadedSkill:
    """Fetch and verify a ``SKILL.md``; see `ClientSkills.load`."""
    if entry.is_dynamic and not allow_dynamic:
        raise SkillRefused(
            entry.uri, "the skill is dynamic, so nothing of it can be verified; allow_dynamic=True loads it anyway"
        )
    result = await read(entry.uri, limits)
    if entry.resources is None:
        data = _content(result, entry.uri)
        if len(data) > MAX_SIZE:
            raise SkillMismatch(entry.uri, f"it has {len(data)} bytes; {MAX_SIZE} is the limit for a skill")
    else:
        data = _verified(result, next(each for each in entry.resources if each.uri == entry.uri))
    # A short frontmatter takes a millisecond; a long one could hold up the other tasks for most of a second.
    if _is_short(data):
        _check_frontmatter(entry, data)
    else:
        await trio.to_thread.run_sync(_check_frontmatter, entry, data, abandon_on_cancel=True)
    return LoadedSkill(entry, data, read)


def _is_short(data: bytes) -> bool:
    try:
        return len(split(data)[0]) <= SHORT
    except FrontmatterError:
        return True


def _check_frontmatter(entry: SkillEntry, data: bytes) -> None:
    """Compare the frontmatter of a file with that of its entry, field by field (Frontmatter Verification)."""
    try:
        data.decode()
        frontmatter = read_frontmatter(data)
    except (FrontmatterError, UnicodeDecodeError) as exc:
        raise SkillMismatch(entry.uri, f"its frontmatter can't be compared with the entry: {exc}") from None
    differs = difference(dict(entry.frontmatter), frontmatter)
    if differs is not None:
        raise SkillMismatch(entry.uri, f"the field {differs[:200]!r} of its frontmatter differs from the entry")


def _verified(result: ReadResourceResult, resource: SkillResource) -> bytes:
    """Return the content of a file, if it is what an entry describes (Verification on Read)."""
    data = _content(result, resource.uri)
    if len(data) != resource.size:
        raise SkillMismatch(resource.uri, f"it has {len(data)} bytes instead of {resource.size}")
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if digest != resource.digest:
        raise SkillMismatch(resource.uri, f"its digest is {digest} instead of {resource.digest}")
    return data


def _content(result: ReadResourceResult, uri: str) -> bytes:
    contents: list[Any] = list(result.contents)
    if len(contents) != 1 or contents[0].uri != uri:
        raise SkillMismatch(uri, "the server has not sent the content of exactly this file")
    [content] = contents
    try:
        if isinstance(content, TextResourceContents):
            return content.text.encode()
        assert isinstance(content, BlobResourceContents)
        return base64.b64decode(content.blob, validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise SkillMismatch(uri, "the server has sent something that is neither text nor Base64") from None
