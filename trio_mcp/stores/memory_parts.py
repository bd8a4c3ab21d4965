"""The parts of `MemoryStores` beside tasks and sessions: changes, the state of users, and counters."""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Callable, Collection

import attrs

from trio_mcp.stores.contract import MOST_TOPICS, TOPIC_AGE, Changed, StateEntry, StatePut
from trio_mcp.stores.times import taken

__all__ = ["MemoryChanges", "MemoryCounters", "MemoryStates"]


@attrs.define(eq=False)
class MemoryChanges:
    """The topics that have changed, each with the number and the time of its last change, the oldest first."""

    _now: Callable[[], float]
    _newest: int = 0
    _dropped: int = 0  # the highest number of a topic that is no longer kept
    _topics: dict[str, tuple[int, float]] = attrs.Factory(dict)

    def announce(self, topics: Collection[str]) -> int:
        """See `Stores.announce`."""
        now = self._now()
        for topic in topics:
            self._topics.pop(topic, None)  # a topic that is added again comes last
            self._newest += 1
            self._topics[topic] = self._newest, now
        while self._topics:
            topic, (number, time) = next(iter(self._topics.items()))
            if len(self._topics) <= MOST_TOPICS and time > now - TOPIC_AGE:
                break
            del self._topics[topic]
            self._dropped = number
        return self._newest

    def since(self, after: int) -> Changed:
        """See `Stores.changed`."""
        found: list[tuple[str, int]] = []
        for topic, (number, _) in reversed(self._topics.items()):
            if number <= after:
                break
            found.append((topic, number))
        return Changed(self._newest, dict(reversed(found)), after >= self._dropped)


@attrs.define(eq=False)
class MemoryStates:
    """The state of users."""

    _now: Callable[[], float]
    _users: dict[str, dict[str, tuple[StateEntry, float | None]]] = attrs.Factory(dict)
    # When states expire. An entry is out of date if the state was replaced by one that expires at another time.
    _expiring: list[tuple[float, str, str]] = attrs.Factory(list)

    def get(self, user: str, name: str) -> StateEntry | None:
        """See `Stores.state`."""
        entry, expires = self._users.get(user, {}).get(name, (None, None))
        return None if expires is not None and expires <= self._now() else entry

    def put(self, user: str, name: str, value: bytes, tag: str | None, expires: float | None) -> StatePut:
        """See `Stores.put_state`."""
        self._drop_expired()
        entry = self.get(user, name)
        if (None if entry is None else entry.tag) != tag:
            return StatePut(False, entry)
        entry = StateEntry(value, secrets.token_urlsafe(8))
        self._users.setdefault(user, {})[name] = entry, expires
        if expires is not None:
            heapq.heappush(self._expiring, (expires, user, name))
        return StatePut(True, entry)

    def forget(self, user: str) -> None:
        """See `Stores.forget_states`."""
        self._users.pop(user, None)

    def _drop_expired(self) -> None:
        now = self._now()
        while self._expiring and self._expiring[0][0] <= now:
            _, user, name = heapq.heappop(self._expiring)
            kept = self._users.get(user, {})
            expires = kept.get(name, (None, None))[1]
            if expires is not None and expires <= now:
                del kept[name]
                if not kept:
                    del self._users[user]


@attrs.define(eq=False)
class MemoryCounters:
    """Token buckets, and keys that are remembered for a while."""

    _clock: Callable[[], float]
    _now: Callable[[], float]
    _full_at: dict[str, float] = attrs.Factory(dict)
    _emptied: list[tuple[float, str]] = attrs.Factory(list)  # when buckets were to be full; later for some of them
    _until: dict[str, float] = attrs.Factory(dict)
    _ending: list[tuple[float, str]] = attrs.Factory(list)

    def take(self, bucket: str, rate: float, burst: int) -> float:
        """See `Stores.take`."""
        now = self._clock()
        while self._emptied and self._emptied[0][0] <= now:
            _, name = heapq.heappop(self._emptied)
            if (full_at := self._full_at.get(name, now)) > now:
                heapq.heappush(self._emptied, (full_at, name))
            else:
                self._full_at.pop(name, None)
        known = bucket in self._full_at
        wait, full_at = taken(self._full_at.get(bucket, now), now, rate=rate, burst=burst)
        if not wait:
            self._full_at[bucket] = full_at
            if not known:
                heapq.heappush(self._emptied, (full_at, bucket))
        return wait

    def remember(self, key: str, seconds: float) -> bool:
        """See `Stores.remember`."""
        now = self._now()
        while self._ending and self._ending[0][0] <= now:
            self._until.pop(heapq.heappop(self._ending)[1], None)
        if key in self._until:
            return False
        self._until[key] = now + seconds
        heapq.heappush(self._ending, (now + seconds, key))
        return True
