"""The Model Context Protocol for Trio: clients and servers for every protocol revision.

Public names are imported on first use, so a client does not load the server: `trio_mcp._door` reads the list in this
module. docs/design.md has a map of the package.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp import blocking as blocking, middleware as middleware, types as types
    from trio_mcp._version import __version__ as __version__
    from trio_mcp.client.answers.sources import Answers as Answers
    from trio_mcp.client.cache import ResponseCache as ResponseCache
    from trio_mcp.client.client import Client as Client
    from trio_mcp.client.config.reading import load_config as load_config
    from trio_mcp.client.failover.parameters import FailoverParameters as FailoverParameters, Switch as Switch
    from trio_mcp.client.group.catalog import Listed as Listed
    from trio_mcp.client.group.client_group import ClientGroup as ClientGroup
    from trio_mcp.client.group.options import GroupOptions as GroupOptions
    from trio_mcp.client.options import ClientOptions as ClientOptions
    from trio_mcp.client.subscriptions import (
        PromptsListChanged as PromptsListChanged,
        ResourcesListChanged as ResourcesListChanged,
        ResourceUpdated as ResourceUpdated,
        Subscription as Subscription,
        ToolsListChanged as ToolsListChanged,
    )
    from trio_mcp.client.tool_results import ToolResult as ToolResult
    from trio_mcp.errors import (
        AuthorizationError as AuthorizationError,
        CapabilityError as CapabilityError,
        ConfigError as ConfigError,
        Disconnected as Disconnected,
        HttpError as HttpError,
        InputError as InputError,
        LocalProtocolError as LocalProtocolError,
        LoginRequired as LoginRequired,
        McpError as McpError,
        MessageTooLarge as MessageTooLarge,
        NegotiationError as NegotiationError,
        OutcomeUnknown as OutcomeUnknown,
        ProcessExited as ProcessExited,
        RemoteProtocolError as RemoteProtocolError,
        RequestTimeout as RequestTimeout,
        SamplingError as SamplingError,
        SessionClosed as SessionClosed,
        ToolError as ToolError,
        TransportError as TransportError,
        TrioMcpError as TrioMcpError,
        UnknownTool as UnknownTool,
    )
    from trio_mcp.http.client.parameters import HttpServerParameters as HttpServerParameters
    from trio_mcp.http.serve import ServeSettings as ServeSettings
    from trio_mcp.http.server.asgi_app import AsgiApp as AsgiApp
    from trio_mcp.http.server.options import HttpOptions as HttpOptions, HttpSettings as HttpSettings
    from trio_mcp.jsonrpc.messages import Notification as Notification
    from trio_mcp.principal import Principal as Principal
    from trio_mcp.proxy.proxy_server import ProxyServer as ProxyServer
    from trio_mcp.retrying import Backoff as Backoff
    from trio_mcp.server.context import Context as Context
    from trio_mcp.server.features.caching import CacheHint as CacheHint
    from trio_mcp.server.features.custom import NotificationContext as NotificationContext
    from trio_mcp.server.features.feature import Entry as Entry, ListOptions as ListOptions
    from trio_mcp.server.features.prompts import PromptDetails as PromptDetails
    from trio_mcp.server.features.resources import (
        ResourceDetails as ResourceDetails,
        ResourceNotFound as ResourceNotFound,
        safe_join as safe_join,
    )
    from trio_mcp.server.features.tools import ToolDetails as ToolDetails
    from trio_mcp.server.functions.surroundings import Depends as Depends
    from trio_mcp.server.functions.sync_threads import FunctionOptions as FunctionOptions
    from trio_mcp.server.input.options import InputOptions as InputOptions, InputRequired as InputRequired
    from trio_mcp.server.input.questions import (
        Accepted as Accepted,
        Cancelled as Cancelled,
        Declined as Declined,
        Elicited as Elicited,
        InputRequest as InputRequest,
        UrlElicitationRequired as UrlElicitationRequired,
    )
    from trio_mcp.server.input.sampling import SampleDetails as SampleDetails
    from trio_mcp.server.log_messages import McpLogHandler as McpLogHandler
    from trio_mcp.server.media import Audio as Audio, File as File, Image as Image
    from trio_mcp.server.options import ProxyOptions as ProxyOptions, ServerOptions as ServerOptions
    from trio_mcp.server.server import Server as Server
    from trio_mcp.session.calls import CallLimits as CallLimits
    from trio_mcp.session.limits import CallOptions as CallOptions, SessionOptions as SessionOptions
    from trio_mcp.session.middleware import OutgoingCall as OutgoingCall
    from trio_mcp.sockets.serving import SocketSettings as SocketSettings
    from trio_mcp.stdio.parameters import StdioServerParameters as StdioServerParameters
    from trio_mcp.stores.event_store import (
        EventsLost as EventsLost,
        EventStore as EventStore,
        StoredEvent as StoredEvent,
    )
    from trio_mcp.stores.event_stores import (
        MemoryEventStore as MemoryEventStore,
        SqliteEventStore as SqliteEventStore,
    )
    from trio_mcp.trace_context import TraceContext as TraceContext
    from trio_mcp.uri_templates import UriTemplate as UriTemplate
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
