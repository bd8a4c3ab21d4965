"""A keychain that keeps its items in memory, in place of the system's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

__all__ = ["keychain"]


class _Keychain:
    def __init__(self) -> None:
        self.items: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        return self.items.get((service, name))

    def set_password(self, service: str, name: str, text: str) -> None:
        self.items[service, name] = text

    def delete_password(self, service: str, name: str) -> None:
        del self.items[service, name]


@contextlib.contextmanager
def keychain() -> Iterator[None]:
    """Put one in the place of the functions of keyring, for a block."""
    made = _Keychain()
    functions = {name: getattr(made, name) for name in ("get_password", "set_password", "delete_password")}
    with mock.patch.multiple("keyring", **functions):
        yield
