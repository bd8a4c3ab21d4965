"""The wire types of every protocol revision, one model per construct.

Names are imported when they are first asked for: ``import trio_mcp.types`` costs nothing, and a program pays for the
constructs it uses. The keys of ``_meta`` stay in :mod:`trio_mcp.types.meta`, which names like ``LOG_LEVEL`` need
beside them to be understood.
"""

# Type checkers read the imports below, which no interpreter runs.
# ruff: noqa: F403
import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trio_mcp.types import meta as meta
    from trio_mcp.types._base import WireModel as WireModel
    from trio_mcp.types.annotated import *
    from trio_mcp.types.cancellation import *
    from trio_mcp.types.capabilities import *
    from trio_mcp.types.common import *
    from trio_mcp.types.completion import *
    from trio_mcp.types.content import *
    from trio_mcp.types.discovery import *
    from trio_mcp.types.elicitation import *
    from trio_mcp.types.elicitation_schema import *
    from trio_mcp.types.error_codes import *
    from trio_mcp.types.errors import *
    from trio_mcp.types.handshake import *
    from trio_mcp.types.icons import *
    from trio_mcp.types.input_required import *
    from trio_mcp.types.jsonrpc import *
    from trio_mcp.types.logging import *
    from trio_mcp.types.messages import *
    from trio_mcp.types.meta_objects import *
    from trio_mcp.types.methods import *
    from trio_mcp.types.progress import *
    from trio_mcp.types.prompts import *
    from trio_mcp.types.resource_subscriptions import *
    from trio_mcp.types.resources import *
    from trio_mcp.types.responses import *
    from trio_mcp.types.roots import *
    from trio_mcp.types.sampling import *
    from trio_mcp.types.subscriptions import *
    from trio_mcp.types.task_support import *
    from trio_mcp.types.tasks import *
    from trio_mcp.types.tools import *
    from trio_mcp.types.unions import *
    from trio_mcp.types.versions import *

# The same once more, for the interpreter; a test holds the two, and every module's own list, together.
_NAMES: Final = {
    "_base": "WireModel",
    "annotated": "Annotated",
    "cancellation": "CancelledNotification CancelledNotificationParams",
    "capabilities": (
        "ClientCapabilities ElicitationCapability PromptsCapability ResourcesCapability RootsCapability "
        "SamplingCapability ServerCapabilities ToolsCapability"
    ),
    "common": (
        "Annotations BaseMetadata Cursor Icon IconTheme Icons Implementation JSONArray JSONObject JSONValue "
        "ProgressToken RequestId ResultType Role"
    ),
    "completion": (
        "CompleteRequest CompleteRequestParams CompleteResult Completion CompletionArgument CompletionContext "
        "PromptReference ResourceReference ResourceTemplateReference"
    ),
    "content": (
        "AudioContent ContentBlock EmbeddedResource ImageContent ResourceLink SamplingMessageContentBlock "
        "TextContent ToolResultContent ToolUseContent"
    ),
    "discovery": "DiscoverRequest DiscoverResult",
    "elicitation": (
        "ElicitAction ElicitRequest ElicitRequestFormParams ElicitRequestParams ElicitRequestURLParams "
        "ElicitResult ElicitationCompleteNotification ElicitationCompleteNotificationParams"
    ),
    "elicitation_schema": (
        "BooleanSchema EnumOption EnumSchema LegacyTitledEnumSchema MultiSelectEnumSchema NumberSchema "
        "PrimitiveSchemaDefinition RequestedSchema SingleSelectEnumSchema StringSchema TitledItems "
        "TitledMultiSelectEnumSchema TitledSingleSelectEnumSchema UntitledItems UntitledMultiSelectEnumSchema "
        "UntitledSingleSelectEnumSchema"
    ),
    "error_codes": (
        "HEADER_MISMATCH INTERNAL_ERROR INVALID_PARAMS INVALID_REQUEST METHOD_NOT_FOUND "
        "MISSING_REQUIRED_CLIENT_CAPABILITY OVERLOADED PARSE_ERROR RESOURCE_NOT_FOUND_LEGACY "
        "UNSUPPORTED_PROTOCOL_VERSION URL_ELICITATION_REQUIRED"
    ),
    "errors": (
        "ElicitationRequiredErrorData HeaderMismatchError HeaderMismatchErrorObject InternalError "
        "InvalidParamsError InvalidRequestError MethodNotFoundError MissingRequiredClientCapabilityError "
        "MissingRequiredClientCapabilityErrorData MissingRequiredClientCapabilityErrorObject ParseError "
        "URLElicitationRequiredError URLElicitationRequiredErrorObject UnsupportedProtocolVersionError "
        "UnsupportedProtocolVersionErrorData UnsupportedProtocolVersionErrorObject"
    ),
    "handshake": "InitializeRequest InitializeRequestParams InitializeResult InitializedNotification PingRequest",
    "icons": "RASTER_TYPES checked_icons decode_icon icon_problem image_type pick_icon",
    "input_required": (
        "INPUT_REQUIRED InputRequest InputRequests InputRequiredResult InputResponse InputResponses "
        "input_response_from_wire"
    ),
    "jsonrpc": (
        "Error ErrorData JSONRPCBatchRequest JSONRPCBatchResponse JSONRPCError JSONRPCErrorResponse "
        "JSONRPCMessage JSONRPCNotification JSONRPCRequest JSONRPCResponse JSONRPCResultResponse"
    ),
    "logging": (
        "LoggingLevel LoggingMessageNotification LoggingMessageNotificationParams SetLevelRequest SetLevelRequestParams"
    ),
    "messages": (
        "CacheScope CacheableResult EmbeddableRequestMessage EmptyResult InputResponseRequestParams "
        "Notification NotificationMessage NotificationParams PaginatedRequest PaginatedRequestParams "
        "PaginatedResult Request RequestMessage RequestParams Result"
    ),
    "meta_objects": (
        "MetaObject NotificationMetaObject RequestMetaObject ResultMetaObject SubscriptionsListenResultMetaObject"
    ),
    "methods": "Lane MethodFacts MethodSpec Sender facts_of method_spec methods_of",
    "progress": "ProgressNotification ProgressNotificationParams",
    "prompts": (
        "GetPromptRequest GetPromptRequestParams GetPromptResult ListPromptsRequest ListPromptsResult Prompt "
        "PromptArgument PromptListChangedNotification PromptMessage"
    ),
    "resource_subscriptions": "SubscribeRequest SubscribeRequestParams UnsubscribeRequest UnsubscribeRequestParams",
    "resources": (
        "BlobResourceContents ListResourceTemplatesRequest ListResourceTemplatesResult ListResourcesRequest "
        "ListResourcesResult ReadResourceRequest ReadResourceRequestParams ReadResourceResult Resource "
        "ResourceContents ResourceListChangedNotification ResourceRequestParams ResourceTemplate "
        "ResourceUpdatedNotification ResourceUpdatedNotificationParams TextResourceContents"
    ),
    "responses": (
        "CallToolResultResponse CompleteResultResponse DiscoverResultResponse GetPromptResultResponse "
        "ListPromptsResultResponse ListResourceTemplatesResultResponse ListResourcesResultResponse "
        "ListToolsResultResponse ReadResourceResultResponse SubscriptionsListenResultResponse"
    ),
    "roots": "ListRootsRequest ListRootsRequestParams ListRootsResult Root RootsListChangedNotification",
    "sampling": (
        "CreateMessageRequest CreateMessageRequestParams CreateMessageResult IncludeContext ModelHint "
        "ModelPreferences SamplingMessage ToolChoice"
    ),
    "subscriptions": (
        "SubscriptionFilter SubscriptionsAcknowledgedNotification SubscriptionsAcknowledgedNotificationParams "
        "SubscriptionsListenRequest SubscriptionsListenRequestParams SubscriptionsListenResult"
    ),
    "task_support": (
        "ClientTasksCapability ClientTasksRequestsCapability ServerTasksCapability "
        "ServerTasksRequestsCapability TaskMetadata TaskSupport TasksElicitationCapability "
        "TasksSamplingCapability TasksToolsCapability ToolExecution"
    ),
    "tasks": (
        "CancelTaskRequest CancelTaskRequestParams CancelTaskResult CreateTaskResult GetTaskPayloadRequest "
        "GetTaskPayloadRequestParams GetTaskPayloadResult GetTaskRequest GetTaskRequestParams GetTaskResult "
        "ListTasksRequest ListTasksResult RelatedTaskMetadata Task TaskAugmentedRequestParams "
        "TaskRequestParams TaskStatus TaskStatusNotification TaskStatusNotificationParams"
    ),
    "tools": (
        "CallToolRequest CallToolRequestParams CallToolResult ListToolsRequest ListToolsResult Tool "
        "ToolAnnotations ToolListChangedNotification"
    ),
    "unions": "ClientNotification ClientRequest ClientResult ServerNotification ServerRequest ServerResult",
    "versions": "Era LATEST LATEST_LEGACY LATEST_MODERN LEGACY_REVISIONS MODERN_REVISIONS REVISIONS at_least era_of",
}
_MODULE_OF: Final = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ("meta", *_MODULE_OF)


if not TYPE_CHECKING:  # or a misspelt name would pass for Any

    def __getattr__(name: str) -> Any:
        if name == "meta":
            return importlib.import_module("trio_mcp.types.meta")
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
