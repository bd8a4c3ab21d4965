"""The errors for calls that a store refuses; all stores of this library use the same messages."""

from __future__ import annotations

from trio_mcp.stores.contract import StaleWriter, StoreError, StoreFull

__all__ = [
    "mailbox_full",
    "not_open",
    "other_server",
    "session_exists",
    "sessions_full",
    "stale_member",
    "stale_writer",
    "store_full",
    "task_exists",
]


def mailbox_full(number: int, limit: int) -> StoreFull:
    """Return the error for a message that a mailbox has no room for."""
    return StoreFull(
        f"the messages that wait for the process {number} have reached the limit of {limit} bytes: try again when it"
        " has read them"
    )


def not_open(what: str) -> StoreError:
    """Return the error for the use of a store outside its block."""
    return StoreError(f"{what} is not open: use it inside `async with stores:`")


def other_server(what: str, owner: str, server: str) -> StoreError:
    """Return the error for a server with another name than the owner of the store."""
    return StoreError(
        f"{what} belongs to the server {owner!r}, not to {server!r}: give each server its own stores,"
        " or give both servers the same name"
    )


def session_exists(key: str) -> ValueError:
    """Return the error for a new session whose key is taken."""
    return ValueError(f"a session with the key {key!r} exists already: give each session a different key")


def sessions_full(limit: int) -> StoreFull:
    """Return the error for a new session beyond the limit."""
    return StoreFull(f"the store already holds {limit} sessions, the limit: wait until some expire, or raise the limit")


def stale_member() -> StaleWriter:
    """Return the error for the use of a stale token of a member."""
    return StaleWriter(
        "this process no longer holds its lease as a member, and others have ended what it ran: give up all requests,"
        " and join again"
    )


def stale_writer(key: str) -> StaleWriter:
    """Return the error for a write to a task with a stale token."""
    return StaleWriter(f"this process no longer holds the lease of the task {key}: stop running it here")


def store_full(limit: int) -> StoreFull:
    """Return the error for a new task beyond the limit."""
    return StoreFull(f"the store already holds {limit} tasks, the limit: wait until some expire, or raise the limit")


def task_exists(key: str) -> ValueError:
    """Return the error for a new task whose key is taken."""
    return ValueError(f"a task with the key {key!r} exists already: give each task a different key")
