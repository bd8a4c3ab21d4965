"""What `Server.statistics` and the HTTP application's tell."""

from __future__ import annotations

import attrs

from trio_mcp.http.server.statistics import HttpStatistics

__all__ = ["HttpStatistics", "ServerStatistics"]


@attrs.frozen
class ServerStatistics:
    """What a server offers and what it is doing, in all of its runs, also those of servers in which it is mounted.

    Attributes:
        tools: Tools that it offers, mounted ones included; so for all kinds.
        resources: Resources, without the templates.
        resource_templates: Resource templates.
        prompts: Prompts.
        completions: Arguments that have a completion function.
        runs: Runs that are going on: entries of the lifespan.
        sessions: Sessions that are open: one for each link; over HTTP one for each session, and for each request that
            belongs to none.
        incoming: Requests that are neither answered nor cancelled, running or queued.
        running: Handlers that run, those that listen aside.
        queued: Requests that wait until fewer handlers of their session run.
        outgoing: Requests to clients that wait for their answer.
        parked: Handlers with ``park_input`` that wait for input between two requests.
        listening: Requests ``subscriptions/listen`` that are open.
        topics: What somebody hears the changes of: lists, and resources by URI.
        watched_resources: How many of these are resources.
        changes_waiting: Changes that somebody is yet to be told of.
        messages_waiting: Messages that wait for a link.
        http: The HTTP endpoints that it is served on.
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
