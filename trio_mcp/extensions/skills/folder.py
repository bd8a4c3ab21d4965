"""Reads a folder of skills: the bytes that are hashed here are those that are served, whatever happens to the folder.

Everything here is sync, and runs in a thread.
"""

from __future__ import annotations

import errno
import hashlib
import mimetypes
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from trio_mcp.extensions.skills.frontmatter import FrontmatterError, read_frontmatter
from trio_mcp.extensions.skills.rules import (
    MAX_FILES,
    MAX_SIZE,
    SKILL_FILE,
    file_uri,
    frontmatter_problem,
    optional_problem,
)
from trio_mcp.uri_templates import MAX_URI

__all__ = ["FolderReader", "FolderSkill", "SkillFile", "SkillTree", "read_regular"]

MAX_DEPTH: Final = 32
"""The maximum depth of the folder, in directories (arbitrary)."""
MAX_NAMES: Final = 100_000
"""The maximum number of names in the folder (arbitrary): without it, a folder given by mistake is read for minutes."""

Stamp: TypeAlias = tuple[int, int, int, int]
"""The fields of a file that change with it: the times of modification and of change, the size, and the inode."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a FIFO or a device must not block, and must not make a terminal the controlling one.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PIECE = 1024 * 1024

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")

# The table of the system is not read: the type of a file would depend on the machine.
_TYPES = mimetypes.MimeTypes(filenames=())
_OWN_TYPES = {
    ".md": "text/markdown",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "application/toml",
}


class Unreadable(Exception):
    """Something in the folder can't be served; the text says why."""


@attrs.frozen(eq=False)
class SkillFile:
    """A file of a skill, as it was read.

    Attributes:
        uri: Its URI.
        data: Its bytes.
        resource: Its URI, digest and size: an item of ``resources`` in the entry of a skill.
        stamp: The stamp of the file that was read.
        mime_type: Its MIME type.
        is_text: Whether it is sent as text, from which the same bytes are made again.
        name: The name of its resource.
        description: The description of its resource, or None.
    """

    uri: str
    data: bytes
    resource: dict[str, Any]
    stamp: Stamp
    mime_type: str
    is_text: bool
    name: str
    description: str | None = None


@attrs.frozen(eq=False)
class FolderSkill:
    """A skill in the folder.

    Attributes:
        path: Its path in the folder.
        entry: The entry that clients get.
    """

    path: str
    entry: dict[str, Any]


@attrs.frozen(eq=False)
class SkillTree:
    """A skill that is in no other skill, with those in it; the unit that is replaced as a whole when a file changes.

    Attributes:
        path: The path of the outermost skill in the folder.
        stamps: The stamp of each file, by its path in the folder.
        directories: The paths of all directories.
        files: The files, by path.
        skills: The skills, the outermost first.
        size: The size of all files, in bytes.
    """

    path: str
    stamps: Mapping[str, Stamp]
    directories: frozenset[str]
    files: Mapping[str, SkillFile]
    skills: tuple[FolderSkill, ...]
    size: int


@attrs.define(eq=False)
class _Found:
    """A tree that a walk has found: its directories, those that are skills, and the stamps of its files."""

    path: str
    directories: list[str] = attrs.Factory(list)
    roots: list[str] = attrs.Factory(list)
    stamps: dict[str, Stamp] = attrs.Factory(dict)


class FolderReader:
    """Reads a folder of skills.

    Args:
        folder: The folder. It may be a symbolic link itself.
        base: What all URIs begin with.
        max_size: The maximum size of all files together, in bytes.
    """

    def __init__(self, folder: str, base: str, max_size: int) -> None:
        self.folder = folder
        self._base = base
        self._max_size = max_size

    def read(self, known: Mapping[str, SkillTree]) -> tuple[dict[str, SkillTree], dict[str, str]]:
        """Read what has changed since the last time.

        Args:
            known: The trees of the last time, by path. The content of a file is read only if its stamp has changed. A
                tree with a problem keeps its old state.

        Returns:
            The trees by path, and the problems by path.
        """
        try:
            root = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as exc:
            return dict(known), {"": f"it can't be opened as a directory ({_said(exc)})"}
        try:
            walk = _Walk()
            try:
                walk.enter(root, "", 0, None)
            except OSError as exc:
                walk.problems[""] = f"it can't be read ({_said(exc)})"
            return self._trees(root, walk, known)
        finally:
            os.close(root)

    def _trees(
        self, root: int, walk: _Walk, known: Mapping[str, SkillTree]
    ) -> tuple[dict[str, SkillTree], dict[str, str]]:
        problems = walk.problems
        trees: dict[str, SkillTree] = {}
        size = 0
        # A problem above a tree, such as an unreadable directory, has hidden the tree; one inside has spoiled it.
        for path in sorted(walk.trees.keys() | known.keys()):
            old, found = known.get(path), walk.trees.get(path)
            if any(_is_within(path, bad) or _is_within(bad, path) for bad in problems):
                tree = old
            elif found is None:
                continue
            else:
                try:
                    tree = self._tree(root, found, old, self._max_size - size)
                except Unreadable as exc:
                    where, reason = exc.args
                    problems[where] = reason
                    tree = old
            if tree is not None:
                trees[path] = tree
                size += tree.size
        return trees, problems

    def _tree(self, root: int, found: _Found, old: SkillTree | None, room: int) -> SkillTree:
        """Return a tree of what a walk has found: the old one, if nothing has changed."""
        directories = frozenset(found.directories)
        if old is not None and old.stamps == found.stamps and old.directories == directories:
            return old
        size = sum(stamp[1] for stamp in found.stamps.values())
        # The tree has all files of the skills in it, too, so the limits of one skill are those of all.
        if size > MAX_SIZE:
            raise Unreadable(found.path, f"the files of the skill have {size} bytes together; {MAX_SIZE} is the limit")
        if size > room:
            raise Unreadable(
                found.path, f"all skills together would have more than max_size={self._max_size} bytes of files"
            )
        kept = {} if old is None else old.files
        files: dict[str, SkillFile] = {}
        for path, stamp in found.stamps.items():
            same = kept.get(path)
            files[path] = same if same is not None and same.stamp == stamp else self._file(root, path, stamp)
        skills = tuple(self._skill(path, files) for path in found.roots)
        return SkillTree(found.path, found.stamps, directories, files, skills, size)

    def _file(self, root: int, path: str, stamp: Stamp) -> SkillFile:
        uri = file_uri(self._base, path)
        if len(uri) > MAX_URI:
            raise Unreadable(path, f"its URI is longer than {MAX_URI} characters")
        try:
            data = read_regular(root, path, stamp)
        except OSError as exc:
            raise Unreadable(path, f"it can't be read ({_said(exc)})") from None
        is_text = _is_text(data)
        resource = {"uri": uri, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}
        return SkillFile(uri, data, resource, stamp, _mime_type(path, is_text), is_text, path.rpartition("/")[2])

    def _skill(self, path: str, files: dict[str, SkillFile]) -> FolderSkill:
        where = f"{path}/{SKILL_FILE}"
        file = files[where]
        try:
            frontmatter = read_frontmatter(file.data)
        except FrontmatterError as exc:
            raise Unreadable(where, str(exc)) from None
        problem = frontmatter_problem(frontmatter, path.rpartition("/")[2]) or optional_problem(frontmatter)
        if problem is not None:
            raise Unreadable(where, problem)
        files[where] = attrs.evolve(file, name=frontmatter["name"], description=frontmatter["description"])
        within = [each.resource for other, each in files.items() if _is_within(other, path)]
        return FolderSkill(path, {"uri": file.uri, "frontmatter": frontmatter, "resources": within})


class _Walk:
    """One walk through a folder, from directory to directory by their descriptors: it follows no link.

    Attributes:
        trees: What was found of each tree, by path.
        problems: The problems, by path.
    """

    def __init__(self) -> None:
        self.trees: dict[str, _Found] = {}
        self.problems: dict[str, str] = {}
        self._names = 0

    def enter(self, directory: int, path: str, depth: int, tree: _Found | None) -> None:
        """Visit a directory.

        Args:
            directory: Its descriptor.
            path: Its path in the folder; "" for the folder itself.
            depth: Its depth.
            tree: The tree that it belongs to, if any.
        """
        names = [name for name in self._checked_names(directory, path) if not name.startswith(".")]
        if SKILL_FILE in names:
            if not path:
                self.problems[SKILL_FILE] = "the folder itself can't be a skill: give the folder that it is in"
                return
            if tree is None:
                tree = self.trees[path] = _Found(path)
            tree.roots.append(path)
        if tree is not None:
            tree.directories.append(path)
        for name in names:
            below = f"{path}/{name}".lstrip("/")
            try:
                self._visit(directory, name, below, depth, tree)
            except OSError as exc:
                self.problems[below] = f"it can't be read ({_said(exc)})"

    def _checked_names(self, directory: int, path: str) -> list[str]:
        """Return the names in a directory, in order, unless there is a problem with one."""
        names: list[str] = []
        with os.scandir(directory) as found:
            for each in found:
                self._names += 1
                if self._names > MAX_NAMES:
                    self.problems[path] = f"the folder has more than {MAX_NAMES} names"
                    return []
                names.append(each.name)
        names.sort()
        alike: dict[str, str] = {}
        for name in names:
            below = f"{path}/{name}".lstrip("/")
            if (problem := _name_problem(name)) is not None:
                self.problems[_shown(below)] = problem
            # On other systems, such names would be those of one file.
            other = alike.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
            if other != name:
                self.problems[below] = f"its name differs only in case from that of {other!r}"
        return names

    def _visit(self, directory: int, name: str, path: str, depth: int, tree: _Found | None) -> None:
        if path in self.problems or _shown(path) in self.problems:
            return
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if depth >= MAX_DEPTH:
                self.problems[path] = f"it is more than {MAX_DEPTH} directories deep"
                return
            child = os.open(name, _DIRECTORY, dir_fd=directory)
            try:
                self.enter(child, path, depth + 1, tree)
            finally:
                os.close(child)
        elif not stat.S_ISREG(status.st_mode):
            self.problems[path] = f"it is {_kind(status.st_mode)}, and only files and directories are served"
        elif tree is not None:
            if len(tree.stamps) >= MAX_FILES:
                self.problems[tree.path] = f"the skill has more than {MAX_FILES} files"
                return
            tree.stamps[path] = _stamp(status)


def read_regular(root: int, path: str, stamp: Stamp) -> bytes:
    """Return the bytes of a regular file, opened component by component without following links, and read once.

    Args:
        root: The descriptor of the folder.
        path: The path of the file in the folder.
        stamp: The stamp that the file had when it was found.

    Raises:
        OSError: If it can't be opened so, is not a regular file, or changes meanwhile.
    """
    *above, name = path.split("/")
    directory = root
    try:
        for each in above:
            child = os.open(each, _DIRECTORY, dir_fd=directory)
            if directory != root:
                os.close(directory)
            directory = child
        file = os.open(name, _FILE, dir_fd=directory)
    finally:
        if directory != root:
            os.close(directory)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file any more")
        data = b"".join(_pieces(file, stamp[1] + 1))
        # A file that is written to while it is read could be served in a state that it never had.
        if len(data) != stamp[1] or _stamp(os.fstat(file)) != stamp:
            raise OSError(errno.EAGAIN, "it changed while it was read")
        return data
    finally:
        os.close(file)


def _pieces(file: int, most: int) -> Iterator[bytes]:
    while most > 0 and (piece := os.read(file, min(most, _PIECE))):
        most -= len(piece)
        yield piece


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns


def _is_within(path: str, directory: str) -> bool:
    return not directory or path == directory or path.startswith(f"{directory}/")


def _name_problem(name: str) -> str | None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if _CONTROL.search(name):
        return "its name has a backslash or a control character"
    if not name.strip(". "):
        return "its name has nothing but dots and spaces"
    return None


def _shown(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()


def _kind(mode: int) -> str:
    return next((kind for test, kind in _KINDS if test(mode)), "a special file")


def _said(exc: OSError) -> str:
    return exc.strerror or str(exc)


def _is_text(data: bytes) -> bool:
    # Control characters would take six bytes each in JSON, so a file of them is sent as bytes.
    if _BINARY.search(data):
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _mime_type(path: str, is_text: bool) -> str:
    suffix = os.path.splitext(path)[1].lower()
    kind, encoding = _TYPES.guess_type(path, strict=True)
    if encoding is not None:
        return "application/gzip" if encoding == "gzip" else "application/octet-stream"
    return _OWN_TYPES.get(suffix) or kind or ("text/plain" if is_text else "application/octet-stream")
