"""Stores: what outlives a connection, or the process. See docs/event_stores."""

from trio_mcp.http.server.legacy.stores.events import EventsLost, EventStore, MemoryEventStore, StoredEvent
from trio_mcp.http.server.legacy.stores.sqlite_events import SqliteEventStore

__all__ = ["EventStore", "EventsLost", "MemoryEventStore", "SqliteEventStore", "StoredEvent"]
