"""Rules for clients with the extensions for apps and for skills."""

from __future__ import annotations

from collections.abc import Iterator

from trio_mcp.conformance.members import member_of, object_of
from trio_mcp.conformance.rules.common import MODERN
from trio_mcp.conformance.rules.extension_apps import EXTENSION as APPS
from trio_mcp.conformance.rules.extension_skills import reads_directories
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest
from trio_mcp.conformance.rules.model import rule
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import meta

__all__: list[str] = []


def _requests(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest]]:
    for connection, asked in history.requests():
        yield asked.event, connection, asked


@rule("MUST", "client", "extensions/apps#client-host-capabilities", "Say which types of pages are shown.")
@each(_requests)
def client_ext_app_types(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    declared = object_of(asked.meta.get(meta.CLIENT_CAPABILITIES, asked.params.get("capabilities")))
    settings = object_of(declared.get("extensions")).get(APPS)
    if settings is None:
        return UNDECIDED
    types = member_of(settings, "mimeTypes")
    kept = isinstance(types, list) and all(isinstance(each, str) for each in types)
    return None if kept else f"the client declares that it shows apps, with the MIME types {types!r:.60}"


@rule(
    "MUST",
    "client",
    "extensions/skills#capability-negotiation",
    "Read directories only where the server declares `directoryRead`.",
    revisions=MODERN,
)
@each(_requests)
def client_ext_skill_directories(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    if asked.method != "resources/directory/read":
        return UNDECIDED
    kept = reads_directories(connection)
    return None if kept else "the client reads a directory of a server that does not declare directoryRead"
