"""Bytes that arrive in pieces."""

from __future__ import annotations

import io

__all__ = ["Pieces"]


class Pieces:
    """Bytes put together from pieces, in linear time."""

    # Not a list of pieces: a peer can send them a few bytes each, and every bytes object costs many times that. Nor a
    # bytearray: `pydantic_core.from_json` copies it, and a `BytesIO` gives out what it holds as it is.

    __slots__ = ("_first", "_joined")

    def __init__(self) -> None:
        self._first = b""
        self._joined: io.BytesIO | None = None

    def add(self, piece: bytes) -> None:
        """Add a piece."""
        if self._joined is not None:
            self._joined.write(piece)
        elif not self._first:
            self._first = piece  # usually the only one: no copy
        elif piece:
            self._joined = io.BytesIO()
            self._joined.write(self._first)
            self._joined.write(piece)

    def joined(self) -> bytes:
        """Return all that was added; no more may follow, or this costs a copy."""
        return self._first if self._joined is None else self._joined.getvalue()
