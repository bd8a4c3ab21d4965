"""Lists in pages, with opaque cursors that stay valid while the list changes (`server/utilities/pagination`)."""

from __future__ import annotations

import base64
import contextlib
import threading
from typing import Generic, Protocol, TypeVar

from trio_mcp.errors import McpError
from trio_mcp.types.error_codes import INVALID_PARAMS

__all__ = ["Follower", "Registry", "page_of"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


ItemT = TypeVar("ItemT", bound=_Named)
FollowedT = TypeVar("FollowedT", contravariant=True)

MAX_CURSOR = 100
"""Characters; a cursor of ours has fewer."""


class Follower(Protocol[FollowedT]):
    """Hears of what a registry holds, under its lock. It may refuse what is added, with a ValueError."""

    def added(self, item: FollowedT) -> None: ...

    def removed(self, item: FollowedT) -> None: ...


class Registry(Generic[ItemT]):
    """Named things in the order in which they were added. Each has a serial number that is never used again.

    Any thread may add and remove: sync tools run in threads of their own.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, tuple[int, ItemT]] = {}
        self._last_serial = 0
        self._changing = threading.Lock()
        self._followers: tuple[Follower[ItemT], ...] = ()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def get(self, name: str) -> ItemT | None:
        """The thing of that name, or None."""
        found = self._items.get(name)
        return None if found is None else found[1]

    def add(self, item: ItemT) -> None:
        """Add one at the end.

        Raises:
            ValueError: The name is taken, here or where a follower holds it.
        """
        with self._changing:
            if item.name in self._items:
                raise ValueError(f"there is a {self.kind} named {item.name!r} already")
            with contextlib.ExitStack() as undo:
                for follower in self._followers:
                    follower.added(item)
                    undo.callback(follower.removed, item)
                undo.pop_all()
            self._last_serial += 1
            self._items[item.name] = (self._last_serial, item)

    def remove(self, name: str) -> None:
        """Remove one.

        Raises:
            KeyError: There is none of that name.
        """
        with self._changing:
            if name not in self._items:
                raise KeyError(f"there is no {self.kind} named {name!r}")
            _, item = self._items.pop(name)
            for follower in self._followers:
                follower.removed(item)

    def follow(self, follower: Follower[ItemT]) -> None:
        """Tell a follower of everything that is there, and from now on of every change.

        Raises:
            ValueError: It refuses something; then it has been told that all of it is gone.
        """
        with self._changing, contextlib.ExitStack() as undo:
            for _, item in self._items.values():
                follower.added(item)
                undo.callback(follower.removed, item)
            undo.pop_all()
            self._followers = (*self._followers, follower)

    def unfollow(self, follower: Follower[ItemT]) -> None:
        """Tell a follower that everything is gone, and nothing from now on."""
        with self._changing:
            self._followers = tuple(each for each in self._followers if each is not follower)
            for _, item in self._items.values():
                follower.removed(item)

    def numbered(self) -> list[tuple[int, ItemT]]:
        """Everything that is there now, with serial numbers, in order."""
        return list(self._items.values())

    def cursor_after(self, serial: int) -> str:
        """The cursor of the page that begins after a serial number."""
        return base64.urlsafe_b64encode(f"{self.kind}:{serial}".encode()).decode()

    def serial_of(self, cursor: object) -> int:
        """The serial number after which a cursor's page begins.

        Raises:
            McpError: The cursor is not one of ours (-32602).
        """
        if isinstance(cursor, str) and len(cursor) <= MAX_CURSOR:
            try:
                serial = int(base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")[2])
            except ValueError:
                serial = 0
            # Compared as a whole, because Base64 and int() are lenient readers.
            if 0 < serial <= self._last_serial and cursor == self.cursor_after(serial):
                return serial
        raise McpError(INVALID_PARAMS, f"invalid cursor: {str(cursor)[:MAX_CURSOR]!r}")


def page_of(registry: Registry[ItemT], cursor: object, size: int) -> tuple[list[ItemT], str | None]:
    """One page, and the cursor of the next (None after the last).

    Raises:
        McpError: The cursor is not one of ours (-32602).
    """
    after = 0 if cursor is None else registry.serial_of(cursor)
    page: list[ItemT] = []
    last = after
    for serial, item in registry.numbered():
        if serial <= after:
            continue
        if len(page) == size:
            return page, registry.cursor_after(last)
        page.append(item)
        last = serial
    return page, None
