"""What `Server.statistics` and the HTTP application's tell."""

from __future__ import annotations

import attrs

__all__ = ["HttpStatistics", "ServerStatistics"]


@attrs.frozen
class HttpStatistics:
    """What an HTTP endpoint is doing.

    Attributes:
        sessions: Sessions of Streamable HTTP that clients know the id of.
        idle_sessions: Those of them that serve no HTTP request, and end after ``session_timeout``.
        sse_sessions: Sessions of HTTP+SSE.
        requests: POSTs that are being served and owe an answer, those of HTTP+SSE aside; ``max_requests`` bounds them.
        bodies: Bodies that are being read.
        exchanges: HTTP answers that carry a stream of a session.
        listening: Those of them that carry what belongs to no request: a GET of Streamable HTTP, or HTTP+SSE.
        streams: Streams of sessions that are open, for requests; with an event store some may have no reader.
        unanswered: Requests in sessions whose answer has not been put on its stream.
        unstored: Messages that wait for the event store.
        watching: Whether there is the task that ends sessions which nobody uses.
        ending: Whether new work is refused, because the server ends.
    """

    sessions: int
    idle_sessions: int
    sse_sessions: int
    requests: int
    bodies: int
    exchanges: int
    listening: int
    streams: int
    unanswered: int
    unstored: int
    watching: bool
    ending: bool


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
