"""A registry of named items, listed in pages with opaque cursors that stay valid while the list changes.

See `server/utilities/pagination`.
"""

from __future__ import annotations

import base64
import bisect
import contextlib
import threading
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from trio_mcp.errors import McpError
from trio_mcp.types.error_codes import INVALID_PARAMS

__all__ = ["Follower", "Named", "Registry"]


class Named(Protocol):
    """An item of a registry; its name is the key."""

    @property
    def name(self) -> str: ...


ItemT = TypeVar("ItemT", bound=Named)
FollowedT = TypeVar("FollowedT", contravariant=True)

# Our own cursors have at most about 50 characters. The length is checked before decoding, so that refusing a long
# cursor costs nothing.
MAX_CURSOR = 100
"""The maximum length of a cursor, in characters."""


class Follower(Protocol[FollowedT]):
    """An observer of a registry, called with the registry's lock held. `added` may refuse an item with ValueError."""

    def added(self, item: FollowedT, enabled: bool) -> None: ...

    def removed(self, item: FollowedT) -> None: ...

    def switched(self, item: FollowedT, enabled: bool) -> None: ...


class Registry(Generic[ItemT]):
    """Holds named items in the order in which they were added, each with a serial number that is never reused.

    A disabled item keeps its name and its position; apart from that, it counts as removed.

    Any thread may add and remove items, since sync tools run in worker threads.

    Args:
        kind: The kind of items, for error messages.
        taken: The error message for a name that is already in use; ``{kind}`` and ``{name}`` are filled in.

    Attributes:
        get: Returns the enabled item with a name, or None. For speed this is the bound method of a dict, because every
            call of a tool begins with this lookup.
    """

    # A cursor is the serial number of the last item of its page. The next page has the items with higher numbers, so
    # additions and removals in between neither repeat nor hide other items.

    def __init__(self, kind: str, taken: str = "there is already a {kind} named {name!r}") -> None:
        self.kind = kind
        self._taken = taken
        self._items: dict[str, ItemT] = {}  # only the enabled items
        self._numbered: dict[str, tuple[int, ItemT]] = {}  # all items with their serial numbers, in order
        # For each disabled item, the parties that have disabled it: this server (None), or the mounted server from
        # which the item was copied. The item is enabled again once all of them agree.
        self._off: dict[str, set[object]] = {}
        self.get = self._items.get
        self._last_serial = 0
        # Followers are called with the lock held, and take the locks of their own registries. This can't deadlock: the
        # order is always from a mounted server to those that it is mounted in, and no server contains itself.
        self._changing = threading.Lock()
        self._followers: tuple[Follower[ItemT], ...] = ()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._numbered

    def check_free(self, name: str) -> None:
        """Refuse a name that is taken.

        Raises:
            ValueError: If the name is taken.
        """
        if name in self._numbered:
            raise ValueError(self._taken.format(kind=self.kind, name=name))

    def add(self, item: ItemT, enabled: bool = True, by: object = None) -> None:
        """Add an item at the end, enabled or not; see `switch`.

        Raises:
            ValueError: If the name is taken, here or in the registry of a follower.
        """
        with self._changing:
            self.check_free(item.name)
            # Followers are told first: if one refuses the item, it is removed again from those that have accepted it.
            with contextlib.ExitStack() as undo:
                for follower in self._followers:
                    follower.added(item, enabled)
                    undo.callback(follower.removed, item)
                undo.pop_all()
            # Numbers are not reused, so that the cursor of a removed item still marks its place. `_items` comes last,
            # as `get` takes no lock and must only find complete items.
            self._last_serial += 1
            self._numbered[item.name] = (self._last_serial, item)
            if enabled:
                self._items[item.name] = item
            else:
                self._off[item.name] = {by}

    def remove(self, name: str) -> None:
        """Remove an item.

        Raises:
            KeyError: If there is no item of this name.
        """
        with self._changing:
            if name not in self._numbered:
                raise KeyError(f"there is no {self.kind} named {name!r}")
            # `_items` is changed first, and not last as in `add`: `get` looks items up in `_items` without the lock,
            # and must not find a removed one.
            self._items.pop(name, None)
            self._off.pop(name, None)
            _, item = self._numbered.pop(name)
            for follower in self._followers:
                follower.removed(item)

    def switch(self, name: str, enabled: bool, by: object = None) -> bool:
        """Enable or disable an item.

        Args:
            name: The item's name.
            enabled: Whether to enable the item. It is enabled only once every party that disabled it has enabled it
                again.
            by: The party that enables or disables the item.

        Returns:
            Whether the item's state has changed.

        Raises:
            KeyError: If there is no item of this name.
        """
        with self._changing:
            if name not in self._numbered:
                raise KeyError(f"there is no {self.kind} named {name!r}")
            item, off = self._numbered[name][1], self._off.setdefault(name, set())
            (off.discard if enabled else off.add)(by)
            if not off:
                del self._off[name]
            if (name in self._items) != bool(off):
                return False
            if off:
                del self._items[name]
            else:
                self._items[name] = item
            for follower in self._followers:
                follower.switched(item, not off)
            return True

    def everything(self) -> list[ItemT]:
        """Return all items in order, including disabled ones."""
        return [item for _, item in list(self._numbered.values())]  # a copy: other threads may change the registry

    def find(self, name: str) -> ItemT | None:
        """Return the item with a name, enabled or not; None if there is no such item."""
        found = self._numbered.get(name)
        return None if found is None else found[1]

    def follow(self, follower: Follower[ItemT]) -> None:
        """Report all items to a follower, and every change from now on.

        Raises:
            ValueError: If the follower refuses an item; all earlier items have then been removed from it again.
        """
        with self._changing, contextlib.ExitStack() as undo:
            for name, (_, item) in self._numbered.items():
                follower.added(item, name in self._items)
                undo.callback(follower.removed, item)
            undo.pop_all()
            self._followers = (*self._followers, follower)

    def unfollow(self, follower: Follower[ItemT]) -> None:
        """Report to a follower that all items are removed, and report no more changes."""
        with self._changing:
            self._followers = tuple(each for each in self._followers if each is not follower)
            for _, item in self._numbered.values():
                follower.removed(item)

    def __iter__(self) -> Iterator[ItemT]:
        """Iterate over a copy of the enabled items."""
        return iter(list(self._items.values()))  # other threads may change the registry during the iteration

    @property
    def used(self) -> bool:
        """Whether there has ever been an item: a capability that clients have seen can't be withdrawn."""
        return self._last_serial > 0

    def _serial_of(self, cursor: object) -> int:
        """Return the serial number after which a cursor's page begins.

        Raises:
            McpError: If the cursor was not made by this registry (-32602).
        """
        if isinstance(cursor, str) and len(cursor) <= MAX_CURSOR:
            try:
                serial = int(base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")[2])
            except ValueError:
                serial = 0
            # Base64 and int() both accept sloppy input, so the cursor is compared with the one that we would have made.
            if 0 < serial <= self._last_serial and cursor == self.cursor_after(serial):
                return serial
        raise McpError(INVALID_PARAMS, f"invalid cursor: {str(cursor)[:MAX_CURSOR]!r}")

    def after(self, cursor: object) -> Iterator[tuple[int, ItemT]]:
        """Iterate over the enabled items after a cursor (None for all), with their serial numbers.

        Raises:
            McpError: If the cursor was not made by this registry (-32602); raised at once, not during the iteration.
        """
        after = 0 if cursor is None else self._serial_of(cursor)
        # A dict keeps the order of insertion, which is that of the serial numbers. The copy is made in one step of the
        # interpreter, so it needs no lock. Bisection finds the beginning of a page without visiting the items before
        # it.
        places = list(self._numbered.values())
        first = bisect.bisect_right(places, after, key=lambda place: place[0])
        return (place for place in places[first:] if place[1].name in self._items)

    def cursor_after(self, serial: int) -> str:
        """Return the cursor of the page that begins after a serial number."""
        return base64.urlsafe_b64encode(f"{self.kind}:{serial}".encode()).decode()
