"""Unions of all the messages that each side may send, in any revision, and models of the reserved keys of ``_meta``.

They are for programs that want to validate such data. The library itself uses the method table, and ``_meta`` as a
plain dict. The method distinguishes requests and notifications; the type of a result follows from its request.
"""

import typing
from typing import Any

from pydantic import ConfigDict, Field

from trio_mcp.types import meta
from trio_mcp.types._base import WireModel
from trio_mcp.types.bases import Annotations, EmptyResult
from trio_mcp.types.capabilities import ClientCapabilities
from trio_mcp.types.common import Implementation, LoggingLevel, ProgressToken, RequestId
from trio_mcp.types.completion import CompleteRequest, CompleteResult
from trio_mcp.types.elicitation import ElicitationCompleteNotification, ElicitRequest, ElicitResult
from trio_mcp.types.input_required import InputRequiredResult
from trio_mcp.types.lifecycle import (
    CancelledNotification,
    DiscoverRequest,
    DiscoverResult,
    InitializedNotification,
    InitializeRequest,
    InitializeResult,
    PingRequest,
)
from trio_mcp.types.notices import LoggingMessageNotification, ProgressNotification, SetLevelRequest
from trio_mcp.types.prompts import (
    GetPromptRequest,
    GetPromptResult,
    ListPromptsRequest,
    ListPromptsResult,
    PromptListChangedNotification,
)
from trio_mcp.types.resources import (
    ListResourcesRequest,
    ListResourcesResult,
    ListResourceTemplatesRequest,
    ListResourceTemplatesResult,
    ReadResourceRequest,
    ReadResourceResult,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
)
from trio_mcp.types.roots import ListRootsRequest, ListRootsResult, RootsListChangedNotification
from trio_mcp.types.sampling import CreateMessageRequest, CreateMessageResult
from trio_mcp.types.subscriptions import (
    SubscribeRequest,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenRequest,
    SubscriptionsListenResult,
    UnsubscribeRequest,
)
from trio_mcp.types.tasks import (
    CancelTaskRequest,
    CancelTaskResult,
    CreateTaskResult,
    GetTaskPayloadRequest,
    GetTaskPayloadResult,
    GetTaskRequest,
    GetTaskResult,
    ListTasksRequest,
    ListTasksResult,
    TaskStatusNotification,
)
from trio_mcp.types.tool_messages import (
    CallToolRequest,
    CallToolResult,
    ListToolsRequest,
    ListToolsResult,
    ToolListChangedNotification,
)

__all__ = [
    "Annotated",
    "ClientNotification",
    "ClientRequest",
    "ClientResult",
    "MetaObject",
    "NotificationMetaObject",
    "RequestMetaObject",
    "ResultMetaObject",
    "ServerNotification",
    "ServerRequest",
    "ServerResult",
    "SubscriptionsListenResultMetaObject",
]

# Either side may send these requests, because either side may run a request that it has received as a task.
_TaskRequest = GetTaskRequest | GetTaskPayloadRequest | CancelTaskRequest | ListTasksRequest
_TaskResult = CreateTaskResult | GetTaskResult | CancelTaskResult | ListTasksResult | GetTaskPayloadResult

ClientRequest = typing.Annotated[
    InitializeRequest
    | PingRequest
    | DiscoverRequest
    | ListResourcesRequest
    | ListResourceTemplatesRequest
    | ReadResourceRequest
    | SubscribeRequest
    | UnsubscribeRequest
    | SubscriptionsListenRequest
    | ListPromptsRequest
    | GetPromptRequest
    | ListToolsRequest
    | CallToolRequest
    | SetLevelRequest
    | CompleteRequest
    | _TaskRequest,
    Field(discriminator="method"),
]

# In the legacy era, the server sends these requests as messages of their own; in the modern era, it embeds them in a
# result.
ServerRequest = typing.Annotated[
    PingRequest | CreateMessageRequest | ListRootsRequest | ElicitRequest | _TaskRequest,
    Field(discriminator="method"),
]

# In the modern era, a client sends only `CancelledNotification`.
ClientNotification = typing.Annotated[
    CancelledNotification
    | InitializedNotification
    | ProgressNotification
    | RootsListChangedNotification
    | TaskStatusNotification,
    Field(discriminator="method"),
]

ServerNotification = typing.Annotated[
    CancelledNotification
    | ProgressNotification
    | ResourceListChangedNotification
    | ResourceUpdatedNotification
    | PromptListChangedNotification
    | ToolListChangedNotification
    | LoggingMessageNotification
    | SubscriptionsAcknowledgedNotification
    | ElicitationCompleteNotification
    | TaskStatusNotification,
    Field(discriminator="method"),
]

# `EmptyResult` comes last in both of the following unions, because any result matches it.
ClientResult = CreateMessageResult | ListRootsResult | ElicitResult | _TaskResult | EmptyResult

ServerResult = (
    InitializeResult
    | DiscoverResult
    | ListResourcesResult
    | ListResourceTemplatesResult
    | ReadResourceResult
    | ListPromptsResult
    | GetPromptResult
    | ListToolsResult
    | CallToolResult
    | CompleteResult
    | SubscriptionsListenResult
    | InputRequiredResult
    | _TaskResult
    | EmptyResult
)


MetaObject = dict[str, Any]

# The table has the `_meta` key of each field. Most keys have a prefix, so they can't be derived from the names of the
# fields.
_KEYS = {
    "protocol_version": meta.PROTOCOL_VERSION,
    "client_info": meta.CLIENT_INFO,
    "client_capabilities": meta.CLIENT_CAPABILITIES,
    "log_level": meta.LOG_LEVEL,
    "server_info": meta.SERVER_INFO,
    "subscription_id": meta.SUBSCRIPTION_ID,
    "progress_token": meta.PROGRESS_TOKEN,
}


# Other keys, such as an application's own, are kept as unknown fields.
class _MetaModel(WireModel):
    model_config = ConfigDict(alias_generator=_KEYS.__getitem__)


class RequestMetaObject(_MetaModel, since="2026-07-28"):
    """The reserved ``_meta`` keys of a modern request: the revision, and what the client declares or asks for."""

    protocol_version: str
    client_capabilities: ClientCapabilities
    client_info: Implementation | None = None
    log_level: LoggingLevel | None = None
    progress_token: ProgressToken | None = None


class NotificationMetaObject(_MetaModel, since="2026-07-28"):
    """The reserved ``_meta`` keys of a notification: only the subscription to which it belongs."""

    subscription_id: RequestId | None = None


class ResultMetaObject(_MetaModel, since="2026-07-28"):
    """The reserved ``_meta`` keys of a result: only the server that made it."""

    server_info: Implementation | None = None


class SubscriptionsListenResultMetaObject(_MetaModel, since="2026-07-28"):
    """The reserved ``_meta`` keys of the result that ends a subscription: the subscription and the server."""

    subscription_id: RequestId
    server_info: Implementation | None = None


# This class has the same name as typing.Annotated, so this module refers to the latter by its full name.
class Annotated(WireModel, only="2024-11-05"):
    """The base of models with annotations in 2024-11-05, where the type of the annotations has no name of its own."""

    annotations: Annotations | None = None
