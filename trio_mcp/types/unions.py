"""Everything that one end may send, over all revisions, and the reserved keys of ``_meta`` as models: for whoever wants
them validated. The library itself asks the method table, and has ``_meta`` as a plain dict.

Requests and notifications are told apart by their method. Results are not: their kind follows from the request.
"""

import typing
from typing import Any

from pydantic import ConfigDict, Field

from trio_mcp.types import meta
from trio_mcp.types._base import WireModel
from trio_mcp.types.capabilities import ClientCapabilities
from trio_mcp.types.common import Annotations, EmptyResult, Implementation, ProgressToken, RequestId
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
from trio_mcp.types.notices import LoggingLevel, LoggingMessageNotification, ProgressNotification, SetLevelRequest
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
from trio_mcp.types.tools import (
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

ServerRequest = typing.Annotated[
    PingRequest | CreateMessageRequest | ListRootsRequest | ElicitRequest | _TaskRequest,
    Field(discriminator="method"),
]

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

_KEYS = {
    "protocol_version": meta.PROTOCOL_VERSION,
    "client_info": meta.CLIENT_INFO,
    "client_capabilities": meta.CLIENT_CAPABILITIES,
    "log_level": meta.LOG_LEVEL,
    "server_info": meta.SERVER_INFO,
    "subscription_id": meta.SUBSCRIPTION_ID,
    "progress_token": meta.PROGRESS_TOKEN,
}


class _MetaModel(WireModel):
    model_config = ConfigDict(alias_generator=_KEYS.__getitem__)


class RequestMetaObject(_MetaModel, since="2026-07-28"):
    """What every modern request tells the server: revision, capabilities, and usually who asks."""

    protocol_version: str
    client_capabilities: ClientCapabilities
    client_info: Implementation | None = None
    log_level: LoggingLevel | None = None
    progress_token: ProgressToken | None = None


class NotificationMetaObject(_MetaModel, since="2026-07-28"):
    """What a notification tells of the subscription it belongs to."""

    subscription_id: RequestId | None = None


class ResultMetaObject(_MetaModel, since="2026-07-28"):
    """What a result tells of the server that made it."""

    server_info: Implementation | None = None


class SubscriptionsListenResultMetaObject(_MetaModel, since="2026-07-28"):
    """What the end of a subscription tells: which one, by whom."""

    subscription_id: RequestId
    server_info: Implementation | None = None


class Annotated(WireModel, only="2024-11-05"):
    """Base of constructs that can be annotated: in that revision annotations were an object without a name."""

    annotations: Annotations | None = None
