"""Everything that one end may send, over all revisions; which revision has which is in the method table.

Requests and notifications are told apart by their method. Results are not: their kind follows from the request.
"""

from typing import Annotated

from pydantic import Field

from trio_mcp.types.cancellation import CancelledNotification
from trio_mcp.types.completion import CompleteRequest, CompleteResult
from trio_mcp.types.discovery import DiscoverRequest, DiscoverResult
from trio_mcp.types.elicitation import ElicitationCompleteNotification, ElicitRequest, ElicitResult
from trio_mcp.types.handshake import InitializedNotification, InitializeRequest, InitializeResult, PingRequest
from trio_mcp.types.input_required import InputRequiredResult
from trio_mcp.types.logging import LoggingMessageNotification, SetLevelRequest
from trio_mcp.types.messages import EmptyResult
from trio_mcp.types.progress import ProgressNotification
from trio_mcp.types.prompts import (
    GetPromptRequest,
    GetPromptResult,
    ListPromptsRequest,
    ListPromptsResult,
    PromptListChangedNotification,
)
from trio_mcp.types.resource_subscriptions import SubscribeRequest, UnsubscribeRequest
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
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenRequest,
    SubscriptionsListenResult,
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
    "ClientNotification",
    "ClientRequest",
    "ClientResult",
    "ServerNotification",
    "ServerRequest",
    "ServerResult",
]

_TaskRequest = GetTaskRequest | GetTaskPayloadRequest | CancelTaskRequest | ListTasksRequest
_TaskResult = CreateTaskResult | GetTaskResult | CancelTaskResult | ListTasksResult | GetTaskPayloadResult

ClientRequest = Annotated[
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

ServerRequest = Annotated[
    PingRequest | CreateMessageRequest | ListRootsRequest | ElicitRequest | _TaskRequest,
    Field(discriminator="method"),
]

ClientNotification = Annotated[
    CancelledNotification
    | InitializedNotification
    | ProgressNotification
    | RootsListChangedNotification
    | TaskStatusNotification,
    Field(discriminator="method"),
]

ServerNotification = Annotated[
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
