"""Stores: the state that several processes of a server share, and that outlives a process.

A server without stores imports only the interface of event stores from this package, for its options.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.stores.contract import (
        LEASE as LEASE,
        Changed as Changed,
        Claim as Claim,
        JournalEntry as JournalEntry,
        StaleWriter as StaleWriter,
        StateConflict as StateConflict,
        StateEntry as StateEntry,
        StatePut as StatePut,
        StoreBusy as StoreBusy,
        StoredTask as StoredTask,
        StoreError as StoreError,
        StoreFull as StoreFull,
        Stores as Stores,
    )
    from trio_mcp.stores.key_ring import KeyRing as KeyRing
    from trio_mcp.stores.listeners import TopicListener as TopicListener, TopicListeners as TopicListeners
    from trio_mcp.stores.memory_stores import MemoryStores as MemoryStores
    from trio_mcp.stores.session_store import (
        Letter as Letter,
        Member as Member,
        OpenStream as OpenStream,
        SessionStore as SessionStore,
        StoredSession as StoredSession,
    )
    from trio_mcp.stores.sqlite_stores import SqliteStores as SqliteStores
    from trio_mcp.stores.user_states import UserStateOptions as UserStateOptions
    from trio_mcp.stores.valkey_stores import ValkeyStores as ValkeyStores
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
