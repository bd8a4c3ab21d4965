"""What a server offers, by name, listed in pages with opaque cursors that stay valid while the list changes.

See `server/utilities/pagination`.
"""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from trio_mcp.errors import McpError
from trio_mcp.types.error_codes import INVALID_PARAMS

__all__ = ["Follower", "Named", "Registry"]


class Named(Protocol):
    """What a registry holds: its name is its key."""

    @property
    def name(self) -> str: ...


ItemT = TypeVar("ItemT", bound=Named)
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

    Args:
        kind: What they are.
        taken: What is said of a name that is taken.

    Attributes:
        get: Gives the thing of a name, or None; as that of a dict, for each call begins with it.
    """

    def __init__(self, kind: str, taken: str = "there is a {kind} named {name!r} already") -> None:
        self.kind = kind
        self._taken = taken
        self._items: dict[str, ItemT] = {}
        self._numbered: dict[str, tuple[int, ItemT]] = {}  # the same, for listing, with serial numbers
        self.get = self._items.get
        self._last_serial = 0
        self._changing = threading.Lock()
        self._followers: tuple[Follower[ItemT], ...] = ()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def check_free(self, name: str) -> None:
        """Refuse a name that is taken.

        Raises:
            ValueError: It is.
        """
        if name in self._items:
            raise ValueError(self._taken.format(kind=self.kind, name=name))

    def add(self, item: ItemT) -> None:
        """Add one at the end.

        Raises:
            ValueError: The name is taken, here or where a follower holds it.
        """
        with self._changing:
            self.check_free(item.name)
            with contextlib.ExitStack() as undo:
                for follower in self._followers:
                    follower.added(item)
                    undo.callback(follower.removed, item)
                undo.pop_all()
            self._last_serial += 1
            self._numbered[item.name] = (self._last_serial, item)
            self._items[item.name] = item

    def remove(self, name: str) -> None:
        """Remove one.

        Raises:
            KeyError: There is none of that name.
        """
        with self._changing:
            if name not in self._items:
                raise KeyError(f"there is no {self.kind} named {name!r}")
            item = self._items.pop(name)
            del self._numbered[name]
            for follower in self._followers:
                follower.removed(item)

    def follow(self, follower: Follower[ItemT]) -> None:
        """Tell a follower of everything that is there, and from now on of every change.

        Raises:
            ValueError: It refuses something; then it has been told that all of it is gone.
        """
        with self._changing, contextlib.ExitStack() as undo:
            for item in self._items.values():
                follower.added(item)
                undo.callback(follower.removed, item)
            undo.pop_all()
            self._followers = (*self._followers, follower)

    def unfollow(self, follower: Follower[ItemT]) -> None:
        """Tell a follower that everything is gone, and nothing from now on."""
        with self._changing:
            self._followers = tuple(each for each in self._followers if each is not follower)
            for item in self._items.values():
                follower.removed(item)

    def __iter__(self) -> Iterator[ItemT]:
        """Everything that is there now, in order."""
        return iter(list(self._items.values()))

    @property
    def used(self) -> bool:
        """Whether there was ever anything in it: what clients have been told once stays true."""
        return self._last_serial > 0

    def _cursor_after(self, serial: int) -> str:
        """The cursor of the page that begins after a serial number."""
        return base64.urlsafe_b64encode(f"{self.kind}:{serial}".encode()).decode()

    def _serial_of(self, cursor: object) -> int:
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
            if 0 < serial <= self._last_serial and cursor == self._cursor_after(serial):
                return serial
        raise McpError(INVALID_PARAMS, f"invalid cursor: {str(cursor)[:MAX_CURSOR]!r}")

    def page(self, cursor: object, size: int) -> tuple[list[ItemT], str | None]:
        """One page, and the cursor of the next (None after the last).

        Raises:
            McpError: The cursor is not one of ours (-32602).
        """
        after = 0 if cursor is None else self._serial_of(cursor)
        page: list[ItemT] = []
        last = after
        for serial, item in list(self._numbered.values()):
            if serial <= after:
                continue
            if len(page) == size:
                return page, self._cursor_after(last)
            page.append(item)
            last = serial
        return page, None
