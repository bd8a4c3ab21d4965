"""`Server`: what people build. It offers tools, resources and prompts, and serves them over any link, in both eras."""

from __future__ import annotations

from typing import Any

from trio_mcp.server.features.listening import ListeningMethods
from trio_mcp.server.features.logging_methods import LoggingMethods
from trio_mcp.server.features.mounting import MountingMethods
from trio_mcp.server.http_methods import HttpMethods

__all__ = ["Server"]


class Server(HttpMethods, ListeningMethods, LoggingMethods, MountingMethods):
    """A server that offers tools, resources and prompts.

    Args:
        name: Its name, for programs.
        version: Its own version.
        title: Its name, for people.
        instructions: Guidance for the model that uses it.
        description: What it is, for people.
        website_url: Where to read more.
        icons: Pictures of it, by https: or data: URI.
        lifespan: ``async with lifespan(server) as state`` surrounds each serving (a stdio process, a listener, an
            in-memory client); handlers find the state in `Context.state`.
        middleware: Each is ``async (context, call_next) -> result`` and surrounds every request that has a handler,
            the first outermost: it may look at or replace ``context.params``, call ``await call_next()`` or not, and
            look at or replace the result (a plain dict). Exceptions travel through it.
        revisions: The protocol revisions to serve.
        expose_errors: Show clients the text of unexpected exceptions. For development: it may hold secrets.
        page_size: How many entries a page of a list has.
        cache_hints: For how long clients of the modern era may keep the results of a method, and for whom:
            ``{"tools/list": CacheHint(ttl=60, scope="public")}``. The methods are ``server/discover``, the four lists,
            and ``resources/read`` for the resources that have no hint of their own. By default nothing may be kept.
        max_sync_tools: How many synchronous functions (tools, resources, prompts, completions) run at once, each in a
            thread; further calls wait.
        extensions: The extensions of the protocol that it declares, each with its settings:
            ``{"com.example/feature": {}}``.
        request_state_key: What signs the state of a request that waits for input (modern era): 32 secret bytes or more,
            the same for all processes that serve one address. Of several, the first signs and any is accepted. By
            default each process has a random one.
        request_state_ttl: How many seconds a client has to come back with the answers.
        principal: ``(context) -> str | None``: on whose behalf a request is made. Nobody else's request may go on
            with its state.
        max_input_rounds: How often one request may ask for input and go on with the answers.
        max_parked: How many handlers with ``park_input`` may wait for input, over all clients.
        options: Limits, timeouts and hooks of each session.
        on_error: Called, sync or async, with what a client sent that belongs to no request.

    Raises:
        TypeError, ValueError: An argument is not what it should be.
    """

    @classmethod
    def from_client(cls, target: Any, **settings: Any) -> Server:
        """A server that offers all that another one does: see `ProxyServer`, whose arguments these are."""
        from trio_mcp.proxy import ProxyServer  # a floor above; only whoever asks for a proxy imports it

        return ProxyServer(target, **settings)
