"""Defines the statistics of a server. This module is imported when a program first asks for such statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio_mcp import _attrs as attrs

if TYPE_CHECKING:  # a server on stdio never loads HTTP
    from trio_mcp.http.server.statistics import HttpStatistics

__all__ = ["ServerStatistics"]


@attrs.frozen
class ServerStatistics:
    """Counts of the items that a server offers and of its current work.

    The counts cover all runs of the server and of the servers that it is mounted in.

    Attributes:
        tools: Tools offered. Like the counts of the other kinds, this includes mounted ones.
        resources: Resources offered, without templates.
        resource_templates: Resource templates offered.
        prompts: Prompts offered.
        completions: Arguments that have a completion function.
        runs: Active runs: lifespans entered and not yet left.
        sessions: Open sessions: one per link; over HTTP one per session, and one per request outside a session.
        incoming: Requests, running or queued, that have been neither responded to nor cancelled.
        running: Running handlers, other than those of ``subscriptions/listen``.
        queued: Requests that are waiting because too many handlers of their session are running.
        outgoing: Requests that the server has sent to clients, and that are waiting for a response.
        parked: Handlers with ``park_input`` that are waiting for input between two requests.
        listening: Open ``subscriptions/listen`` requests.
        topics: Lists and resources that at least one client watches for changes.
        watched_resources: How many of the watched topics are resources.
        changes_waiting: Changes pending for at least one client.
        messages_waiting: Messages waiting until a link can accept them.
        http: The statistics of each HTTP endpoint that the server is served on.
    """

    tools: int
    resources: int
    resource_templates: int
    prompts: int
    completions: int
    runs: int
    sessions: int
    incoming: int
    running: int
    queued: int
    outgoing: int
    parked: int
    listening: int
    topics: int
    watched_resources: int
    changes_waiting: int
    messages_waiting: int
    http: tuple[HttpStatistics, ...]
