"""The parts of a task as JSON: its stored call, journal, questions and outcome; and its state on the wire."""

from __future__ import annotations

import datetime
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
from pydantic_core import from_json, to_json

from trio_mcp.errors import McpError
from trio_mcp.extensions.tasks.errors import ENDED
from trio_mcp.jsonrpc.messages import ErrorData
from trio_mcp.principal import Principal
from trio_mcp.server.input.request_state import Answer, Question
from trio_mcp.stores.contract import JournalEntry, StoredTask

__all__ = [
    "Journal",
    "StoredCall",
    "answer_entry",
    "asked_of",
    "detailed",
    "entry_size",
    "error_bytes",
    "key_of",
    "new_id",
    "once_entry",
    "owner_of",
    "state_entry",
    "to_wire",
]

MAX_ID: Final = 200
"""The longest task id that is looked up, in characters (arbitrary); those of `new_id` have 22."""


def new_id() -> str:
    """Return a new task id, of 128 random bits."""
    return secrets.token_urlsafe(16)


def key_of(task_id: object) -> str | None:
    """Return the digest under which a task is stored; None if this can't be the id of a task."""
    if type(task_id) is not str or not 0 < len(task_id) <= MAX_ID:
        return None
    # The id is random, so the digest needs neither salt nor rounds.
    return hashlib.sha256(task_id.encode("utf-8", "replace")).hexdigest()


def owner_of(principal: Principal | None) -> str:
    """Return the identity of the principal that a task belongs to, as a string; empty without a principal."""
    return "" if principal is None else json.dumps(principal.identity)


@attrs.frozen
class StoredCall:
    """The call that a task carries out, without the headers and the token that came with it.

    Attributes:
        arguments: The tool's arguments.
        revision: The revision of the request.
        client_info: The client's ``clientInfo``.
        capabilities: The capabilities that the client declared.
        scopes: The scopes that the tool needed at the time of the call.
    """

    arguments: dict[str, Any] | None
    revision: str
    client_info: dict[str, Any] | None
    capabilities: dict[str, Any]
    scopes: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """Return the call as JSON."""
        return to_json([self.arguments, self.revision, self.client_info, self.capabilities, self.scopes])

    @classmethod
    def from_bytes(cls, data: bytes) -> StoredCall:
        """Read a call from the JSON of `to_bytes`."""
        arguments, revision, info, capabilities, scopes = from_json(data)
        return cls(arguments, revision, info, capabilities, tuple(scopes))


def entry_size(entry: JournalEntry) -> int:
    """Return the size of an entry of a journal, in bytes."""
    key, value = entry
    return len(key.encode()) + len(value)


@attrs.define
class Journal:
    """The answers and ``once`` values that a task's function has got so far; later runs of the function replay them.

    Attributes:
        answers: The answers, by the keys that the function uses.
        memory: The values of `Context.once`, by key.
        state: The state of the last `InputRequired` that the function returned.
        explicit: Whether the function has returned an `InputRequired`, or raised an `UrlElicitationRequired`.
        used: The keys on the wire of the questions so far; each names only one question of the task.
        size: The size of all entries, in bytes.
    """

    answers: dict[str, Answer] = attrs.Factory(dict)
    memory: dict[str, Any] = attrs.Factory(dict)
    state: Any = None
    explicit: bool = False
    used: set[str] = attrs.Factory(set)
    size: int = 0

    @classmethod
    def read(cls, entries: Iterable[JournalEntry]) -> Journal:
        """Read a journal from its entries, in the order in which they were added."""
        found = cls()
        for key, data in entries:
            found.size += entry_size((key, data))
            kind, _, name = key.partition(":")
            value = from_json(data)
            if kind == "once":
                found.memory[name] = value
            elif kind == "answer":
                base, method, digest, answer = value
                found.used.add(name)
                found.answers[base] = Answer(Question(method, digest), answer)
            else:
                found.state, found.explicit = value, True
        return found

    def entries(self) -> list[JournalEntry]:
        """Return the entries of a journal that is not stored yet."""
        self.used |= set(self.answers)
        return [
            *(once_entry(name, value) for name, value in self.memory.items()),
            *(answer_entry(name, name, each.question, each.data) for name, each in self.answers.items()),
        ]

    def wire_keys(self, keys: Iterable[str]) -> dict[str, str]:
        """Return the keys of questions on the wire: the function's keys, with a number where one was used before."""
        used, found = self.used.copy(), dict[str, str]()
        for key in keys:
            numbered = (f"{key}#{number}" for number in range(2, len(used) + 3))
            found[key] = key if key not in used else next(name for name in numbered if name not in used)
            used.add(found[key])
        return found


def once_entry(name: str, value: Any) -> JournalEntry:
    """Return the entry of a ``once`` value."""
    return f"once:{name}", to_json(value, inf_nan_mode="constants")


def answer_entry(wire_key: str, key: str, question: Question, data: Any) -> JournalEntry:
    """Return the entry of an answer."""
    return f"answer:{wire_key}", to_json([key, *question, data])


def state_entry(number: int, state: Any) -> JournalEntry:
    """Return the entry of the state of an `InputRequired`."""
    return f"state:{number}", to_json(state, inf_nan_mode="constants")


def asked_of(task: StoredTask) -> dict[str, list[Any]]:
    """Return the open questions: by key on the wire, the function's key, the question, and its method and digest."""
    found: dict[str, list[Any]] = from_json(task.asked) if task.asked else {}
    return found


def error_bytes(error: McpError | ErrorData) -> bytes:
    """Return the JSON of the error with which a task has failed."""
    data = {} if error.data is None else {"data": error.data}
    return to_json({"error": {"code": error.code, "message": error.message, **data}})


def to_wire(task: StoredTask, task_id: str, poll: float) -> dict[str, Any]:
    """Return the state of a task on the wire, without its questions and its outcome.

    Args:
        task: The task.
        task_id: Its id, which is not stored.
        poll: Seconds that clients should wait between two polls.
    """
    wire: dict[str, Any] = {"taskId": task_id, "status": task.status}
    if task.message is not None:
        wire["statusMessage"] = task.message
    wire |= {
        "createdAt": _iso(task.created),
        "lastUpdatedAt": _iso(task.updated),
        "ttlMs": None if task.expires is None else max(1, round((task.expires - task.created) * 1000)),
        "pollIntervalMs": max(1, round(poll * 1000)),
    }
    return wire


def detailed(task: StoredTask, task_id: str, poll: float) -> dict[str, Any]:
    """Return the state of a task with its questions or its outcome, as in ``tasks/get`` and ``notifications/tasks``."""
    wire = to_wire(task, task_id, poll)
    if task.status == "input_required":
        wire["inputRequests"] = {key: question for key, (_, question, _) in asked_of(task).items()}
    elif task.result and task.status in ENDED:
        outcome: Mapping[str, Any] = from_json(task.result)
        wire |= outcome
    return wire


def _iso(seconds: float) -> str:
    return (
        datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
