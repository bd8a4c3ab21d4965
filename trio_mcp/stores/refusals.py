"""The errors for calls that a store refuses, in the words that all stores of this library use."""

from __future__ import annotations

from trio_mcp.stores.contract import StaleWriter, StoreError, StoreFull

__all__ = ["not_open", "other_server", "stale_session", "stale_writer", "store_full", "task_exists"]


def not_open(what: str) -> StoreError:
    """Return the error for the use of a store outside its block."""
    return StoreError(f"{what} is not open: use it inside of `async with stores:`")


def other_server(what: str, owner: str, server: str) -> StoreError:
    """Return the error for a server whose name is not that of the server that a store belongs to."""
    return StoreError(
        f"{what} belongs to the server {owner!r}, and not to {server!r}: give each server stores of its own,"
        " or give both the same name"
    )


def stale_session(session: str) -> StaleWriter:
    """Return the error for a write to a session with a token that is not that of its lease."""
    return StaleWriter(f"the session {session} is no longer held by this process: stop serving it here")


def stale_writer(key: str) -> StaleWriter:
    """Return the error for a write to a task with a token that is not that of its lease."""
    return StaleWriter(f"the task {key} is no longer held by this process: stop running it here")


def store_full(limit: int) -> StoreFull:
    """Return the error for a new task beyond the limit."""
    return StoreFull(f"the store already holds {limit} tasks: wait until some have expired, or raise the limit")


def task_exists(key: str) -> ValueError:
    """Return the error for a new task whose key is taken."""
    return ValueError(f"there is already a task with the key {key!r}: give each task a key of its own")
