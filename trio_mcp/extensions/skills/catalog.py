"""The skills that a server serves at one moment, and their pages."""

from __future__ import annotations

import base64
import bisect
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from trio_mcp.errors import McpError
from trio_mcp.extensions.skills.errors import SkillError, SkillFolderError
from trio_mcp.extensions.skills.folder import FolderReader, SkillFile, SkillTree
from trio_mcp.extensions.skills.frontmatter import write_frontmatter
from trio_mcp.extensions.skills.rules import SKILL_FILE, file_uri, frontmatter_problem, optional_problem, root_of
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.uri_templates import MAX_URI, check_uri

__all__ = [
    "DynamicSkill",
    "FolderScan",
    "Rescan",
    "ServedSkill",
    "SkillCatalog",
    "SkillSource",
    "Unlisted",
    "dynamic_text",
    "page_of",
]

Unlisted: TypeAlias = Collection[str] | Callable[[str], bool]
"""Skills that are not listed: their paths in the folder, or a function that returns whether a path is one of them."""

MAX_PAGE: Final = 8 * 1024 * 1024
"""The approximate maximum size of a page, in bytes: a page has one entry at least, which is never split."""
PER_FILE: Final = 120
"""The size of a file in an entry, in bytes, in addition to its URI."""


@attrs.frozen(eq=False)
class DynamicSkill:
    """A skill whose text a function makes for each reading.

    Attributes:
        uri: The URI of its ``SKILL.md``.
        fields: Its frontmatter.
        function: The function.
        header: The frontmatter as text.
        listed: Whether it is listed.
    """

    uri: str
    fields: Mapping[str, Any]
    function: Callable[..., Any]
    header: str
    listed: bool


@attrs.frozen(eq=False)
class ServedSkill:
    """A skill as clients get it.

    Attributes:
        uri: The URI of its ``SKILL.md``.
        entry: Its entry. It must not be changed.
        listed: Whether it is listed.
        size: The approximate size of the entry, in bytes.
    """

    uri: str
    entry: dict[str, Any]
    listed: bool
    size: int


@attrs.frozen
class Rescan:
    """The result of `Skills.rescan`.

    Attributes:
        added: The URIs of skills that are new.
        changed: The URIs of skills of which a file has changed, or been added or removed.
        removed: The URIs of skills that are gone.
        problems: A line for each problem, which names the file. A skill with a problem is served as it was before.
    """

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    problems: tuple[str, ...]


@attrs.frozen(eq=False)
class FolderScan:
    """The trees and the problems that were found in the folder, by path, and the number of the scan."""

    number: int
    trees: Mapping[str, SkillTree]
    problems: Mapping[str, str]


class SkillCatalog:
    """All skills of one moment: a snapshot, which is replaced as a whole.

    Attributes:
        trees: The trees of the folder, by path.
        files: The files of the folder's skills, by URI.
        dynamic: The dynamic skills, by URI.
        skills: All skills, by the URIs of their ``SKILL.md``.
        listed: The URIs of the listed skills, in order.
        directories: For each directory, by URI: the URIs of what is directly in it, in order, and whether each is a
            directory.
    """

    def __init__(
        self, trees: Mapping[str, SkillTree], dynamic: Mapping[str, DynamicSkill], base: str, unlisted: Unlisted
    ) -> None:
        self.trees = trees
        self.dynamic = dynamic
        self.files: dict[str, SkillFile] = {}
        self.skills: dict[str, ServedSkill] = {}
        children: dict[str, dict[str, bool]] = {}
        for tree in trees.values():
            self.files.update((each.uri, each) for each in tree.files.values())
            for skill in tree.skills:
                hidden = unlisted(skill.path) if callable(unlisted) else skill.path in unlisted
                self._add(skill.entry, not hidden)
            self._place(tree, base, children)
        for each in dynamic.values():
            self._add({"uri": each.uri, "frontmatter": dict(each.fields), "resources": "dynamic"}, each.listed)
            children.setdefault(root_of(each.uri), {})[each.uri] = False
        self.listed = sorted(uri for uri, skill in self.skills.items() if skill.listed)
        self.directories = {uri: sorted(found.items()) for uri, found in children.items()}

    def _add(self, entry: dict[str, Any], listed: bool) -> None:
        resources = entry["resources"]
        files = () if resources == "dynamic" else resources
        size = len(str(entry["frontmatter"])) + sum(len(each["uri"]) + PER_FILE for each in files)
        self.skills[entry["uri"]] = ServedSkill(entry["uri"], entry, listed, size)

    @staticmethod
    def _place(tree: SkillTree, base: str, children: dict[str, dict[str, bool]]) -> None:
        """Add the directories of a tree, and those that it is in."""
        uris = {path: file_uri(base, path) for path in tree.directories}
        above = tree.path
        while above:
            uris[above] = file_uri(base, above)
            above = above.rpartition("/")[0]
        for path, uri in uris.items():
            children.setdefault(uri, {})
            parent = path.rpartition("/")[0]
            if parent:
                children.setdefault(uris[parent], {})[uri] = True
        for path, file in tree.files.items():
            children[uris[path.rpartition("/")[0]]][file.uri] = False


def page_of(
    uris: list[str], cursor: object, sizes: Callable[[str], int | None], most: int
) -> tuple[list[str], str | None]:
    """Return a page of URIs in order, and the cursor of the next page.

    A cursor is the last URI of its page, so pages stay complete while skills come and go, and processes that serve the
    same folder understand one another's cursors.

    Args:
        uris: All URIs, in order.
        cursor: The cursor that the client has sent; None for the first page.
        sizes: Returns the size of an item; None to leave it out.
        most: The maximum number of items.

    Raises:
        McpError: If the cursor was not made by this function (-32602).
    """
    start = 0 if cursor is None else bisect.bisect_right(uris, _read_cursor(cursor))
    page: list[str] = []
    size = 0
    for uri in uris[start:]:
        own = sizes(uri)
        if own is None:
            continue
        size += own
        if page and (len(page) == most or size > MAX_PAGE):
            return page, base64.urlsafe_b64encode(page[-1].encode()).decode()
        page.append(uri)
    return page, None


def _read_cursor(cursor: object) -> str:
    if isinstance(cursor, str) and len(cursor) <= MAX_URI * 2:
        try:
            uri = base64.urlsafe_b64decode(cursor.encode()).decode()
            # Base64 has several spellings of the same bytes, of which only ours is accepted.
            if uri and base64.urlsafe_b64encode(uri.encode()).decode() == cursor:
                return uri
        except ValueError:
            pass
    raise McpError(INVALID_PARAMS, f"invalid cursor: {str(cursor)[:100]!r}")


class SkillSource:
    """Where the skills of a server come from: a folder, and functions.

    Args:
        folder: The folder; None for dynamic skills only.
        base: What the URIs of all files in the folder begin with.
        unlisted: The skills that are not listed.
        max_size: The maximum size of all files together, in bytes.

    Attributes:
        catalog: The skills of this moment.
    """

    def __init__(self, folder: str | None, base: str, unlisted: Unlisted, max_size: int) -> None:
        self._reader = None if folder is None else FolderReader(folder, base, max_size)
        self._base = base
        self._unlisted = unlisted
        self._dynamic: dict[str, DynamicSkill] = {}
        self.catalog = SkillCatalog({}, {}, base, unlisted)
        # Scans are numbered, because the tasks that wait for their threads may go on in any order.
        self._scans = self._adopted = 0
        # Only one thread reads the folder at a time. The other lock is held for moments, even by the event loop.
        self._reading = threading.Lock()
        self._changing = threading.Lock()

    def scan(self) -> FolderScan:
        """Read what has changed in the folder, in a thread."""
        with self._reading:
            self._scans += 1
            trees, problems = ({}, {}) if self._reader is None else self._reader.read(self.catalog.trees)
            return FolderScan(self._scans, trees, problems)

    def adopt(self, scan: FolderScan, *, strict: bool) -> Rescan:
        """Replace the catalog by one of a scan, unless a later scan has been adopted.

        Args:
            scan: The scan.
            strict: Whether to raise if there is a problem, and replace nothing.

        Raises:
            SkillFolderError: If there is a problem.
        """
        with self._changing:
            problems = dict(scan.problems)
            for tree in scan.trees.values():
                for path, file in tree.files.items():
                    if file.uri in self._dynamic:
                        problems[path] = f"a dynamic skill is served at {file.uri}"
            lines = tuple(self._lines(problems))
            if lines and strict:
                assert self._reader is not None
                raise SkillFolderError(self._reader.folder, lines)
            if scan.number < self._adopted:
                return Rescan((), (), (), lines)
            self._adopted = scan.number
            return self._replace(scan.trees, lines)

    def _lines(self, problems: Mapping[str, str]) -> Iterable[str]:
        folder = "" if self._reader is None else self._reader.folder
        for path, problem in sorted(problems.items()):
            yield f"{folder}/{path}: {problem}" if path else f"{folder}: {problem}"

    def _replace(self, trees: Mapping[str, SkillTree], problems: tuple[str, ...]) -> Rescan:
        old = self.catalog
        # Trees and dynamic skills compare by identity.
        if old.trees == trees and old.dynamic == self._dynamic:
            return Rescan((), (), (), problems)
        new = SkillCatalog(trees, dict(self._dynamic), self._base, self._unlisted)
        self.catalog = new
        both = old.skills.keys() & new.skills.keys()
        return Rescan(
            added=tuple(sorted(new.skills.keys() - old.skills.keys())),
            changed=tuple(sorted(uri for uri in both if _differ(old.skills[uri].entry, new.skills[uri].entry))),
            removed=tuple(sorted(old.skills.keys() - new.skills.keys())),
            problems=problems,
        )

    def add_dynamic(
        self, uri: str, function: Callable[..., Any], description: str, fields: Mapping[str, Any], listed: bool
    ) -> None:
        """Add a dynamic skill.

        Raises:
            TypeError: If the URI is not a string, or a field is not JSON data.
            ValueError: If the URI or a field is invalid, or the URI is taken.
        """
        check_uri(uri, "the URI of a dynamic skill")
        root = root_of(uri)
        what = f"dynamic skill {uri!r}"
        if not root:
            raise ValueError(
                f"{what}: the URI must end with a name and /{SKILL_FILE}, as in 'skill://daily/{SKILL_FILE}'"
            )
        name = root.rpartition("/")[2]
        if "name" in fields or "description" in fields:
            raise ValueError(f"{what}: the name comes from the URI, and the description has its own argument")
        own = {"name": name, "description": description, **fields}
        problem = frontmatter_problem(own, name) or optional_problem(own)
        if problem is not None:
            raise ValueError(f"{what}: {problem}")
        if not all(isinstance(key, str) for key in own):
            raise TypeError(f"{what}: the names of fields must be strings")
        try:
            header = write_frontmatter(own)
        except (TypeError, ValueError) as exc:
            raise type(exc)(f"{what}: the frontmatter must be JSON data: {exc}") from None
        with self._changing:
            if uri in self._dynamic or uri in self.catalog.files:
                raise ValueError(f"{what}: there is already a skill with this URI")
            self._dynamic[uri] = DynamicSkill(uri, own, function, header, listed)
            self._replace(self.catalog.trees, ())


def _differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    # A tree without a change keeps its entries.
    return one is not other and one != other


async def dynamic_text(skill: DynamicSkill, call: Callable[[], Awaitable[Any]]) -> str:
    """Return the text of a dynamic skill.

    Args:
        skill: The skill.
        call: Calls its function.

    Raises:
        SkillError: If the function returns anything but a string.
    """
    body = await call()
    if not isinstance(body, str):
        raise SkillError(
            f"the function of the dynamic skill {skill.uri!r} must return a string, got {type(body).__name__}"
        )
    return f"{skill.header}\n{body}"
