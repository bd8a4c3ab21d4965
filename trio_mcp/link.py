"""The contract between a session and a transport."""

from __future__ import annotations

from typing import NamedTuple

import trio

from trio_mcp.jsonrpc.messages import SessionMessage

__all__ = ["Link"]


class Link(NamedTuple):
    """What a transport yields: a pair of channels of `SessionMessage`, which unpacks into ``(read, write)``.

    A transport is an async context manager that yields one. It promises:

    * garbage from the peer arrives as a message with a `Malformed` value, the loss of the link as one with a
      `Failure`, and after that, or after a clean end, ``read`` ends;
    * closing ``write`` ends the sending side once everything before it has been written;
    * leaving the context manager stops everything that the transport runs.
    """

    read: trio.abc.ReceiveChannel[SessionMessage]
    write: trio.abc.SendChannel[SessionMessage]
