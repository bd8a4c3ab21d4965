"""`Skills`: the skills extension, for clients and servers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from trio_mcp._checks import check_count, check_flag

if TYPE_CHECKING:
    from trio_mcp.client.client import Client
    from trio_mcp.client.group.client_group import ClientGroup
    from trio_mcp.extensions.skills.catalog import Rescan
    from trio_mcp.extensions.skills.client import ClientSkills, SkillsClientSide
    from trio_mcp.extensions.skills.group import GroupSkills
    from trio_mcp.extensions.skills.server import SkillsOnServer
    from trio_mcp.server.features.caching import CacheHint

__all__ = ["Skills"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

MAX_SIZE = 256 * 1024 * 1024
"""The default of ``max_size``, in bytes (arbitrary)."""

_BASE = re.compile(r"[a-z][a-z0-9+.-]*://(?:[A-Za-z0-9._~!$&'()*+,;=:@%-]+/)*")


class Skills:
    """The skills extension, ``io.modelcontextprotocol/skills``: a server publishes folders of instructions (SEP-2640).

    For a server, ``Server("desk", extensions=[Skills("skills")])``: each directory in the folder that has a
    ``SKILL.md`` is a skill, at any depth, and each of its files is a resource. For a client,
    ``Client(url, extensions=[Skills()])``, and then `Skills.of`. Both need ``pip install 'trio-mcp[skills]'``.

    When a server starts, it reads the folder in a thread, without following links, and serves the bytes that it has
    hashed: later changes are served only after `rescan`. Names that begin with a dot are left out. Each skill may have
    512 files and 16 MiB. One object may be given to several servers and clients.

    Args:
        folder: The folder; None for a client, or for dynamic skills only.
        base: What the URIs of all files begin with: a scheme, as in ``"skill://"``, or also a path, as in
            ``"github://owner/repo/"``.
        unlisted: Skills that are not listed, but can be got and read by clients that know their URIs: their paths in
            the folder, or a function ``(path) -> bool``. Their files are among the server's resources like all others.
        max_size: The maximum size of all files together, which are held in memory, in bytes.
        cache: How long clients of the modern era may cache entries and files; by default, what the server's
            `ListOptions` say about ``resources/list`` and ``resources/read``.

    Raises:
        TypeError, ValueError: If an argument is invalid.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        base: str = "skill://",
        unlisted: Collection[str] | Callable[[str], bool] = (),
        max_size: int = MAX_SIZE,
        cache: CacheHint | None = None,
    ) -> None:
        # `fspath` also accepts bytes.
        path = None if folder is None else os.fspath(folder)
        if path is not None and not isinstance(path, str):
            raise TypeError(f"folder must be a path, got {folder!r}")
        if not isinstance(base, str):
            raise TypeError(f"base must be a string, got {base!r}")
        if not _BASE.fullmatch(base):
            raise ValueError(f"base must be a scheme with '://', or a URI that ends with '/', got {base!r}")
        if isinstance(unlisted, str) or not (callable(unlisted) or isinstance(unlisted, Collection)):
            raise TypeError(f"unlisted must be a list of paths, or a function, got {unlisted!r}")
        check_count("max_size", max_size)
        if cache is not None:
            from trio_mcp.server.features.caching import checked_hint

            checked_hint(cache, "cache")
        self._folder, self._base, self._unlisted, self._max_size, self._cache = path, base, unlisted, max_size, cache
        self._client_side: SkillsClientSide | None = None
        self._server_side: SkillsOnServer | None = None

    # Each side is imported only when it is used: a client does not need the server's side, nor a server the client's.

    @property
    def client_side(self) -> SkillsClientSide:
        """The client's side of the extension."""
        if self._client_side is None:
            from trio_mcp.extensions.skills.client import SkillsClientSide

            self._client_side = SkillsClientSide()
        return self._client_side

    @property
    def server_side(self) -> SkillsOnServer:
        """The server's side of the extension."""
        if self._server_side is None:
            from trio_mcp.extensions.skills.catalog import SkillSource
            from trio_mcp.extensions.skills.server import SkillsOnServer

            source = SkillSource(self._folder, self._base, self._unlisted, self._max_size)
            self._server_side = SkillsOnServer(source, self._cache)
        return self._server_side

    def dynamic(
        self,
        uri: str,
        *,
        description: str,
        frontmatter: Mapping[str, Any] | None = None,
        listed: bool = True,
    ) -> Callable[[FunctionT], FunctionT]:
        """Serve a skill whose text a function makes for each reading: ``@skills.dynamic("skill://daily/SKILL.md", …)``.

        The function is sync or async, may have a `Context` and dependencies, and returns the text after the
        frontmatter. Clients can't verify such a skill, and many load none: prefer files.

        Args:
            uri: The URI of the skill's ``SKILL.md``. The segment before that is the skill's name.
            description: The description, of 1 to 1024 characters.
            frontmatter: Further fields of the frontmatter, as JSON data.
            listed: Whether the skill is listed.

        Raises:
            TypeError, ValueError: If an argument is invalid, or the URI is taken.
        """
        check_flag("listed", listed)

        def register(function: FunctionT) -> FunctionT:
            if not callable(function):
                raise TypeError(f"a dynamic skill must be a function, got {type(function).__name__}")
            side = self.server_side
            side.source.add_dynamic(uri, function, description, {} if frontmatter is None else frontmatter, listed)
            side.publish()
            return function

        return register

    async def rescan(self) -> Rescan:
        """Read what has changed in the folder, in a thread, and serve it.

        Only files whose time, size or inode has changed are read. A skill that has changed is replaced as a whole; one
        that has become invalid is served as it was, and the problem is returned and logged. Clients that listen learn
        which resources have changed. Each process of a server has to call this itself.

        Returns:
            What has changed.

        If the call is cancelled, it ends once the folder has been read.
        """
        return await self.server_side.rescan()

    @overload
    @staticmethod
    def of(client: Client) -> ClientSkills: ...

    @overload
    @staticmethod
    def of(client: ClientGroup) -> GroupSkills: ...

    @staticmethod
    def of(client: Client | ClientGroup) -> ClientSkills | GroupSkills:
        """Return the skills of a client's server, or of all servers of a group. Nothing is sent.

        Raises:
            LocalProtocolError: If the client was made without this extension. In a group, the calls raise it.
        """
        from trio_mcp.client.client import Client
        from trio_mcp.extensions.skills.rules import IDENTIFIER

        if not isinstance(client, Client):
            from trio_mcp.extensions.skills.group import GroupSkills

            return GroupSkills(client)
        skills: ClientSkills = client.attached(IDENTIFIER)
        return skills
