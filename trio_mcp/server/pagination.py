"""Lists in pages, with opaque cursors that stay valid while the list changes (`server/utilities/pagination`)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from trio_mcp.errors import McpError
from trio_mcp.types.error_codes import INVALID_PARAMS

__all__ = ["Registry", "page_of"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


ItemT = TypeVar("ItemT", bound=_Named)


class Registry(Generic[ItemT]):
    """Named things in the order in which they were added. Each has a serial number that is never used again."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, tuple[int, ItemT]] = {}
        self._next_serial = 1

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
            ValueError: The name is taken.
        """
        if item.name in self._items:
            raise ValueError(f"there is a {self.kind} named {item.name!r} already")
        self._items[item.name] = (self._next_serial, item)
        self._next_serial += 1

    def remove(self, name: str) -> None:
        """Remove one.

        Raises:
            KeyError: There is none of that name.
        """
        if name not in self._items:
            raise KeyError(f"there is no {self.kind} named {name!r}")
        del self._items[name]

    def numbered(self) -> Iterable[tuple[int, ItemT]]:
        """Everything, with serial numbers, in order."""
        return self._items.values()


def page_of(registry: Registry[ItemT], cursor: object, size: int) -> tuple[list[ItemT], str | None]:
    """One page, and the cursor of the next (None after the last).

    Raises:
        McpError: The cursor is not one of ours (-32602).
    """
    after = 0 if cursor is None else _read_cursor(cursor, registry.kind)
    page: list[ItemT] = []
    last = after
    for serial, item in registry.numbered():
        if serial <= after:
            continue
        if len(page) == size:
            return page, _make_cursor(registry.kind, last)
        page.append(item)
        last = serial
    return page, None


def _make_cursor(kind: str, serial: int) -> str:
    return base64.urlsafe_b64encode(f"{kind}:{serial}".encode()).decode()


def _read_cursor(cursor: object, kind: str) -> int:
    if isinstance(cursor, str) and len(cursor) <= 100:
        try:
            of_kind, _, serial = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
        except (binascii.Error, ValueError):
            of_kind = serial = ""
        if of_kind == kind and serial.isdecimal():
            return int(serial)
    raise McpError(INVALID_PARAMS, f"invalid cursor: {cursor!r}"[:200])
