"""The wire types of all protocol revisions, one model per construct.

Names are imported on first use: ``import trio_mcp.types`` costs nothing, and a program pays only for the constructs
that it uses. The keys of ``_meta`` stay in :mod:`trio_mcp.types.meta`, because names such as ``LOG_LEVEL`` are clear
only beside that module's name.
"""

# The imports below are for type checkers only; at run time `__getattr__` does their work.
# ruff: noqa: F403
import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trio_mcp.types import meta as meta
    from trio_mcp.types._base import WireModel as WireModel
    from trio_mcp.types.bases import *
    from trio_mcp.types.capabilities import *
    from trio_mcp.types.common import *
    from trio_mcp.types.completion import *
    from trio_mcp.types.content import *
    from trio_mcp.types.elicitation import *
    from trio_mcp.types.envelopes import *
    from trio_mcp.types.error_codes import *
    from trio_mcp.types.icons import *
    from trio_mcp.types.input_required import *
    from trio_mcp.types.lifecycle import *
    from trio_mcp.types.methods import *
    from trio_mcp.types.notices import *
    from trio_mcp.types.prompts import *
    from trio_mcp.types.resources import *
    from trio_mcp.types.roots import *
    from trio_mcp.types.sampling import *
    from trio_mcp.types.subscriptions import *
    from trio_mcp.types.task_support import *
    from trio_mcp.types.tasks import *
    from trio_mcp.types.tool_messages import *
    from trio_mcp.types.tools import *
    from trio_mcp.types.unions import *
    from trio_mcp.types.versions import *

# The same names once more, for `__getattr__`. A test checks that the two agree with each other and with each module's
# `__all__`.
_NAMES: Final = {
    "_base": "WireModel",
    "bases": (
        "Annotations BaseMetadata CacheablePage CacheableResult EmbeddableRequestMessage EmptyResult Icons "
        "InputResponseRequestParams Notification NotificationMessage NotificationParams PaginatedRequest "
        "PaginatedRequestParams PaginatedResult Request RequestMessage RequestParams Result"
    ),
    "capabilities": (
        "ClientCapabilities ElicitationCapability PromptsCapability ResourcesCapability RootsCapability "
        "SamplingCapability ServerCapabilities ToolsCapability"
    ),
    "common": (
        "CacheScope Cursor Described Icon IconTheme Implementation JSONArray JSONObject JSONValue LoggingLevel "
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
    "elicitation": (
        "BooleanSchema ElicitAction ElicitRequest ElicitRequestFormParams ElicitRequestParams "
        "ElicitRequestURLParams ElicitResult ElicitationCompleteNotification ElicitationCompleteNotificationParams "
        "EnumOption EnumSchema LegacyTitledEnumSchema MultiSelectEnumSchema NumberSchema PrimitiveSchemaDefinition "
        "RequestedSchema SingleSelectEnumSchema StringSchema TitledItems TitledMultiSelectEnumSchema "
        "TitledSingleSelectEnumSchema UntitledItems UntitledMultiSelectEnumSchema UntitledSingleSelectEnumSchema"
    ),
    "envelopes": (
        "CallToolResultResponse CompleteResultResponse DiscoverResultResponse ElicitationRequiredErrorData Error "
        "ErrorData GetPromptResultResponse HeaderMismatchError HeaderMismatchErrorObject InternalError "
        "InvalidParamsError InvalidRequestError JSONRPCBatchRequest JSONRPCBatchResponse JSONRPCError "
        "JSONRPCErrorResponse JSONRPCMessage JSONRPCNotification JSONRPCRequest JSONRPCResponse "
        "JSONRPCResultResponse ListPromptsResultResponse ListResourceTemplatesResultResponse "
        "ListResourcesResultResponse ListToolsResultResponse MethodNotFoundError "
        "MissingRequiredClientCapabilityError MissingRequiredClientCapabilityErrorData "
        "MissingRequiredClientCapabilityErrorObject ParseError ReadResourceResultResponse "
        "SubscriptionsListenResultResponse URLElicitationRequiredError URLElicitationRequiredErrorObject "
        "UnsupportedProtocolVersionError UnsupportedProtocolVersionErrorData UnsupportedProtocolVersionErrorObject"
    ),
    "error_codes": (
        "HEADER_MISMATCH INTERNAL_ERROR INVALID_PARAMS INVALID_REQUEST METHOD_NOT_FOUND "
        "MISSING_REQUIRED_CLIENT_CAPABILITY OVERLOADED PARSE_ERROR RESOURCE_NOT_FOUND_LEGACY "
        "UNSUPPORTED_PROTOCOL_VERSION URL_ELICITATION_REQUIRED"
    ),
    "icons": "RASTER_TYPES checked_icons decode_icon icon_problem image_type pick_icon",
    "input_required": (
        "INPUT_REQUIRED InputRequest InputRequests InputRequiredResult InputResponse InputResponses "
        "input_response_from_wire"
    ),
    "lifecycle": (
        "CancelledNotification CancelledNotificationParams DiscoverRequest DiscoverResult InitializeRequest "
        "InitializeRequestParams InitializeResult InitializedNotification PingRequest"
    ),
    "methods": "Lane MethodFacts MethodSpec Sender facts_of method_spec methods_of",
    "notices": (
        "LoggingMessageNotification LoggingMessageNotificationParams ProgressNotification "
        "ProgressNotificationParams SetLevelRequest SetLevelRequestParams"
    ),
    "prompts": (
        "GetPromptRequest GetPromptRequestParams GetPromptResult ListPromptsRequest ListPromptsResult Prompt "
        "PromptArgument PromptListChangedNotification PromptMessage"
    ),
    "resources": (
        "BlobResourceContents ListResourceTemplatesRequest ListResourceTemplatesResult ListResourcesRequest "
        "ListResourcesResult ReadResourceRequest ReadResourceRequestParams ReadResourceResult Resource "
        "ResourceContents ResourceListChangedNotification ResourceRequestParams ResourceTemplate "
        "ResourceUpdatedNotification ResourceUpdatedNotificationParams TextResourceContents"
    ),
    "roots": "ListRootsRequest ListRootsRequestParams ListRootsResult Root RootsListChangedNotification",
    "sampling": (
        "CreateMessageRequest CreateMessageRequestParams CreateMessageResult IncludeContext ModelHint "
        "ModelPreferences SamplingMessage ToolChoice"
    ),
    "subscriptions": (
        "SubscribeRequest SubscribeRequestParams SubscriptionFilter SubscriptionsAcknowledgedNotification "
        "SubscriptionsAcknowledgedNotificationParams SubscriptionsListenRequest SubscriptionsListenRequestParams "
        "SubscriptionsListenResult UnsubscribeRequest UnsubscribeRequestParams"
    ),
    "task_support": (
        "ClientTasksCapability ClientTasksRequestsCapability ServerTasksCapability ServerTasksRequestsCapability "
        "TaskMetadata TasksElicitationCapability TasksSamplingCapability TasksToolsCapability"
    ),
    "tasks": (
        "CancelTaskRequest CancelTaskRequestParams CancelTaskResult CreateTaskResult GetTaskPayloadRequest "
        "GetTaskPayloadRequestParams GetTaskPayloadResult GetTaskRequest GetTaskRequestParams GetTaskResult "
        "ListTasksRequest ListTasksResult RelatedTaskMetadata Task TaskAugmentedRequestParams TaskRequestParams "
        "TaskStatus TaskStatusNotification TaskStatusNotificationParams"
    ),
    "tool_messages": (
        "CallToolRequest CallToolRequestParams CallToolResult ListToolsRequest ListToolsResult "
        "ToolListChangedNotification"
    ),
    "tools": "TaskSupport Tool ToolAnnotations ToolExecution",
    "unions": (
        "Annotated ClientNotification ClientRequest ClientResult MetaObject NotificationMetaObject "
        "RequestMetaObject ResultMetaObject ServerNotification ServerRequest ServerResult "
        "SubscriptionsListenResultMetaObject"
    ),
    "versions": "Era LATEST LATEST_LEGACY LATEST_MODERN LEGACY_REVISIONS MODERN_REVISIONS REVISIONS at_least era_of",
}
_MODULE_OF: Final = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ("meta", *_MODULE_OF)


# Type checkers must not see `__getattr__`, or a misspelt name would pass as Any.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "meta":
            return importlib.import_module("trio_mcp.types.meta")
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        # Python calls `__getattr__` for missing names only, so from now on the name costs nothing.
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
