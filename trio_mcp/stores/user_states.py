"""The states that a server keeps for its users: which user's they are, how they are changed, and how large they are."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import random
import weakref
from collections.abc import Callable, MutableMapping
from typing import Final, TypeVar

import attrs
import trio
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from trio_mcp._checks import check_count, check_flag, check_hook, check_seconds, validator
from trio_mcp.convert import brief
from trio_mcp.principal import Principal
from trio_mcp.stores.contract import StateConflict, StateEntry, StoreError, Stores

__all__ = ["UserStateOptions", "UserStates"]

ModelT = TypeVar("ModelT", bound=BaseModel)

MOST_TRIES: Final = 8
"""How many times a change is tried before it fails with `StateConflict`."""

PAUSE: Final = 0.004
"""The longest pause in seconds after the first conflict (arbitrary); it doubles with each further one.

It is longer if a try takes longer: those who try again within the time of a try are in conflict again."""

LONGEST_PAUSE: Final = 1.0
"""The longest pause in seconds after any conflict (arbitrary)."""

LONGEST_TURN: Final = 2.0
"""For how many seconds a call waits for the others of its process, which a store may hold up (arbitrary)."""

MOST_SEEN: Final = 1000
SEEN_BYTES: Final = 4 * 1024 * 1024
"""How many states a process remembers, and how many bytes they have together (both arbitrary)."""


@attrs.frozen(kw_only=True)
class UserStateOptions:
    """How a server keeps states for its users: see `Context.update_user_state`.

    Attributes:
        ttl: Seconds after which a state that nothing has written is deleted; None for never.
        max_size: The maximum size of a state, in bytes of JSON.
        across_clients: Whether a user has one state in all client programs. By default a user has another state in each
            one, because a program should not see what the user has entrusted to another one.
        trust_principal: Whether a principal from ``Server(principal=…)`` counts. By default only the principals of
            accepted tokens do (``auth=``), because a client that can choose a principal reads the states of that user.

    Raises:
        TypeError, ValueError: If a value is invalid.
    """

    ttl: float | None = attrs.field(
        default=30 * 24 * 3600.0, validator=validator(check_seconds, finite=True, optional=True)
    )
    max_size: int = attrs.field(default=64 * 1024, validator=validator(check_count))
    across_clients: bool = attrs.field(default=False, validator=validator(check_flag))
    trust_principal: bool = attrs.field(default=False, validator=validator(check_flag))


@attrs.define(eq=False)
class _Seen:
    """The states that this process has read or written last; the least recent ones are forgotten first."""

    _entries: dict[tuple[str, str], StateEntry] = attrs.field(factory=dict, init=False)
    _size: int = attrs.field(default=0, init=False)

    def take(self, user: str, name: str) -> StateEntry | None:
        """Return a state, and forget it; it may have changed since."""
        entry = self._entries.pop((user, name), None)
        if entry is not None:
            self._size -= _size_of(name, entry)
        return entry

    def keep(self, user: str, name: str, entry: StateEntry | None) -> None:
        """Remember a state, unless nothing is kept."""
        self.take(user, name)
        if entry is not None:
            self._entries[user, name] = entry
            self._size += _size_of(name, entry)
            while len(self._entries) > MOST_SEEN or self._size > SEEN_BYTES:
                self.take(*next(iter(self._entries)))

    def forget(self, user: str) -> None:
        """Forget the states of a user."""
        for key in [key for key in self._entries if key[0] == user]:
            self.take(*key)


@attrs.frozen(eq=False)
class UserStates:
    """The states of the users of one server.

    Attributes:
        stores: Where they lie.
        options: How they are kept.
    """

    stores: Stores
    options: UserStateOptions
    _seen: _Seen = attrs.field(factory=_Seen, init=False)
    # For states that several calls change at once: only those that were in conflict use them.
    _turns: MutableMapping[tuple[str, str], trio.Lock] = attrs.field(factory=weakref.WeakValueDictionary, init=False)

    def user(self, principal: Principal) -> str:
        """Return the digest under which the states of a user are kept."""
        issuer, subject, client = principal.identity
        identity = [issuer, subject] if self.options.across_clients else [issuer, subject, client]
        return hashlib.sha256(f"trio_mcp user\0{json.dumps(identity)}".encode()).hexdigest()

    async def read(self, user: str, name: str, model: type[ModelT]) -> ModelT:
        """Return a state, or a new one if nothing is kept. The errors are those of `update`."""
        _check_model(model)
        entry = await self.stores.state(user, name)
        self._seen.keep(user, name, entry)
        return _state_of(entry, name, model)

    async def update(self, user: str, name: str, model: type[ModelT], change: Callable[[ModelT], ModelT]) -> ModelT:
        """Replace a state with what a function returns for it.

        If this process has seen the state before, that is tried first, as mostly no other process has changed it since.
        The store compares the tag in any case, so no change is lost, and what is tried in vain does not count as a try.

        Args:
            user: The user.
            name: The name of the state.
            model: The class of the state.
            change: Gets the state, or a new one, and returns the state to keep; called again after a conflict.

        Returns:
            The state that is kept.

        Raises:
            StateConflict: If others have changed the state at each try.
            StoreError: If the stored state does not fit the model, or the store fails.
            TypeError: If an argument or the function's result has the wrong type, or the model can't be made without
                arguments.
            ValueError: If the function's result does not fit the model, or is too large.
        """
        _check_model(model)
        check_hook("change", change, sync=True)
        entry = self._seen.take(user, name)
        guesses = 0 if entry is None else 1
        began, has_turn = trio.current_time(), False
        if entry is None:
            entry = await self.stores.state(user, name)
        async with contextlib.AsyncExitStack() as stack:
            for turn in range(MOST_TRIES + guesses):
                if turn > guesses:
                    # Those who were in conflict must not try again at the same time: those in this process take turns,
                    # and those in other processes most likely try at another moment. A pause counts from the conflict,
                    # so those of several calls do not add up.
                    longest = min(max(PAUSE, trio.current_time() - began) * 2 ** (turn - guesses), LONGEST_PAUSE)
                    until = trio.current_time() + random.random() * longest
                    if not has_turn:
                        with trio.move_on_after(LONGEST_TURN):
                            await stack.enter_async_context(self._turns.setdefault((user, name), trio.Lock()))
                            has_turn = True
                    await trio.sleep_until(until)
                    began = trio.current_time()
                    entry = await self.stores.state(user, name)
                try:
                    value, kept = self._checked(name, model, change(_state_of(entry, name, model)))
                except Exception:
                    if turn >= guesses:
                        raise
                    entry = await self.stores.state(user, name)  # the state may be another one by now, which does fit
                    continue
                expires = None if self.options.ttl is None else self.stores.now() + self.options.ttl
                tag = None if entry is None else entry.tag
                put = await self.stores.put_state(user, name, value, tag=tag, expires=expires)
                if put.done:
                    # A user whose requests meet another process each time would be a wrong guess each time.
                    if not turn:
                        self._seen.keep(user, name, put.entry)
                    return kept
                entry = put.entry
        raise StateConflict(
            f"the state {name!r} of a user was not changed: others have changed it at each of {MOST_TRIES} tries; try"
            " again later, or divide the state into several that change less often"
        )

    async def forget(self, user: str) -> None:
        """Delete all states of a user."""
        self._seen.forget(user)
        await self.stores.forget_states(user)

    def _checked(self, name: str, model: type[ModelT], changed: object) -> tuple[bytes, ModelT]:
        """Return what to store for a state, and the state as it will be read from that."""
        if not isinstance(changed, model):
            if inspect.iscoroutine(changed):
                changed.close()
            raise TypeError(
                f"change must return the {model.__name__} to keep, got {type(changed).__name__}; a function that"
                " modifies the one that it gets must return it, too"
            )
        try:
            # Names of fields are stored, and not aliases, of which a model may have one kind to write and another to
            # read.
            value = changed.model_dump_json(by_alias=False, round_trip=True, warnings="none").encode()
        except (PydanticSerializationError, ValueError) as exc:
            raise TypeError(f"the {model.__name__} that change returned can't be turned into JSON: {exc}") from None
        if len(value) > self.options.max_size:
            raise ValueError(
                f"the state {name!r} would take {len(value)} bytes; {self.options.max_size} is the limit, which"
                " UserStateOptions(max_size=…) sets"
            )
        try:
            # Pydantic does not check what is assigned to a field, and a state that can't be read would stay in the way.
            return value, model.model_validate_json(value, by_alias=False, by_name=True)
        except ValidationError as exc:
            raise ValueError(
                f"the {model.__name__} that change returned does not fit its own class: {brief(exc)}"
            ) from None


def _size_of(name: str, entry: StateEntry) -> int:
    return len(entry.value) + len(name)


def _check_model(model: object) -> None:
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        raise TypeError(f"model must be a class of pydantic's BaseModel, got {model!r:.100}")


def _state_of(entry: StateEntry | None, name: str, model: type[ModelT]) -> ModelT:
    return _new(model) if entry is None else _stored(name, model, entry.value)


def _new(model: type[ModelT]) -> ModelT:
    try:
        return model()
    except ValidationError as exc:
        raise TypeError(
            f"a user's first {model.__name__} can't be made without arguments: give each field a default ({brief(exc)})"
        ) from None


def _stored(name: str, model: type[ModelT], value: bytes) -> ModelT:
    try:
        return model.model_validate_json(value, by_alias=False, by_name=True)
    except ValidationError as exc:
        raise StoreError(
            f"the state {name!r} that is kept for a user does not fit {model.__name__}: {brief(exc)}. If the class has"
            " changed, give new fields a default and let old values be valid; or keep the new class under another name="
        ) from None
