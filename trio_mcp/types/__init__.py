"""The wire types of every protocol revision, one model per construct.

Names are imported when they are first asked for: ``import trio_mcp.types`` costs nothing, and a program pays for the
constructs it uses. The keys of ``_meta`` stay in :mod:`trio_mcp.types.meta`, which names like ``LOG_LEVEL`` need
beside them to be understood.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trio_mcp.types import meta as meta
    from trio_mcp.types._base import WireModel as WireModel
    from trio_mcp.types.annotated import Annotated as Annotated
    from trio_mcp.types.cancellation import CancelledNotification as CancelledNotification
    from trio_mcp.types.cancellation import CancelledNotificationParams as CancelledNotificationParams
    from trio_mcp.types.capabilities import ClientCapabilities as ClientCapabilities
    from trio_mcp.types.capabilities import ElicitationCapability as ElicitationCapability
    from trio_mcp.types.capabilities import PromptsCapability as PromptsCapability
    from trio_mcp.types.capabilities import ResourcesCapability as ResourcesCapability
    from trio_mcp.types.capabilities import RootsCapability as RootsCapability
    from trio_mcp.types.capabilities import SamplingCapability as SamplingCapability
    from trio_mcp.types.capabilities import ServerCapabilities as ServerCapabilities
    from trio_mcp.types.capabilities import ToolsCapability as ToolsCapability
    from trio_mcp.types.common import Annotations as Annotations
    from trio_mcp.types.common import BaseMetadata as BaseMetadata
    from trio_mcp.types.common import Cursor as Cursor
    from trio_mcp.types.common import Icon as Icon
    from trio_mcp.types.common import Icons as Icons
    from trio_mcp.types.common import IconTheme as IconTheme
    from trio_mcp.types.common import Implementation as Implementation
    from trio_mcp.types.common import JSONArray as JSONArray
    from trio_mcp.types.common import JSONObject as JSONObject
    from trio_mcp.types.common import JSONValue as JSONValue
    from trio_mcp.types.common import ProgressToken as ProgressToken
    from trio_mcp.types.common import RequestId as RequestId
    from trio_mcp.types.common import ResultType as ResultType
    from trio_mcp.types.common import Role as Role
    from trio_mcp.types.completion import CompleteRequest as CompleteRequest
    from trio_mcp.types.completion import CompleteRequestParams as CompleteRequestParams
    from trio_mcp.types.completion import CompleteResult as CompleteResult
    from trio_mcp.types.completion import Completion as Completion
    from trio_mcp.types.completion import CompletionArgument as CompletionArgument
    from trio_mcp.types.completion import CompletionContext as CompletionContext
    from trio_mcp.types.completion import PromptReference as PromptReference
    from trio_mcp.types.completion import ResourceReference as ResourceReference
    from trio_mcp.types.completion import ResourceTemplateReference as ResourceTemplateReference
    from trio_mcp.types.content import AudioContent as AudioContent
    from trio_mcp.types.content import ContentBlock as ContentBlock
    from trio_mcp.types.content import EmbeddedResource as EmbeddedResource
    from trio_mcp.types.content import ImageContent as ImageContent
    from trio_mcp.types.content import ResourceLink as ResourceLink
    from trio_mcp.types.content import SamplingMessageContentBlock as SamplingMessageContentBlock
    from trio_mcp.types.content import TextContent as TextContent
    from trio_mcp.types.content import ToolResultContent as ToolResultContent
    from trio_mcp.types.content import ToolUseContent as ToolUseContent
    from trio_mcp.types.discovery import DiscoverRequest as DiscoverRequest
    from trio_mcp.types.discovery import DiscoverResult as DiscoverResult
    from trio_mcp.types.elicitation import ElicitAction as ElicitAction
    from trio_mcp.types.elicitation import ElicitationCompleteNotification as ElicitationCompleteNotification
    from trio_mcp.types.elicitation import (
        ElicitationCompleteNotificationParams as ElicitationCompleteNotificationParams,
    )
    from trio_mcp.types.elicitation import ElicitRequest as ElicitRequest
    from trio_mcp.types.elicitation import ElicitRequestFormParams as ElicitRequestFormParams
    from trio_mcp.types.elicitation import ElicitRequestParams as ElicitRequestParams
    from trio_mcp.types.elicitation import ElicitRequestURLParams as ElicitRequestURLParams
    from trio_mcp.types.elicitation import ElicitResult as ElicitResult
    from trio_mcp.types.elicitation_schema import BooleanSchema as BooleanSchema
    from trio_mcp.types.elicitation_schema import EnumOption as EnumOption
    from trio_mcp.types.elicitation_schema import EnumSchema as EnumSchema
    from trio_mcp.types.elicitation_schema import LegacyTitledEnumSchema as LegacyTitledEnumSchema
    from trio_mcp.types.elicitation_schema import MultiSelectEnumSchema as MultiSelectEnumSchema
    from trio_mcp.types.elicitation_schema import NumberSchema as NumberSchema
    from trio_mcp.types.elicitation_schema import PrimitiveSchemaDefinition as PrimitiveSchemaDefinition
    from trio_mcp.types.elicitation_schema import RequestedSchema as RequestedSchema
    from trio_mcp.types.elicitation_schema import SingleSelectEnumSchema as SingleSelectEnumSchema
    from trio_mcp.types.elicitation_schema import StringSchema as StringSchema
    from trio_mcp.types.elicitation_schema import TitledItems as TitledItems
    from trio_mcp.types.elicitation_schema import TitledMultiSelectEnumSchema as TitledMultiSelectEnumSchema
    from trio_mcp.types.elicitation_schema import TitledSingleSelectEnumSchema as TitledSingleSelectEnumSchema
    from trio_mcp.types.elicitation_schema import UntitledItems as UntitledItems
    from trio_mcp.types.elicitation_schema import UntitledMultiSelectEnumSchema as UntitledMultiSelectEnumSchema
    from trio_mcp.types.elicitation_schema import UntitledSingleSelectEnumSchema as UntitledSingleSelectEnumSchema
    from trio_mcp.types.error_codes import HEADER_MISMATCH as HEADER_MISMATCH
    from trio_mcp.types.error_codes import INTERNAL_ERROR as INTERNAL_ERROR
    from trio_mcp.types.error_codes import INVALID_PARAMS as INVALID_PARAMS
    from trio_mcp.types.error_codes import INVALID_REQUEST as INVALID_REQUEST
    from trio_mcp.types.error_codes import METHOD_NOT_FOUND as METHOD_NOT_FOUND
    from trio_mcp.types.error_codes import MISSING_REQUIRED_CLIENT_CAPABILITY as MISSING_REQUIRED_CLIENT_CAPABILITY
    from trio_mcp.types.error_codes import OVERLOADED as OVERLOADED
    from trio_mcp.types.error_codes import PARSE_ERROR as PARSE_ERROR
    from trio_mcp.types.error_codes import RESOURCE_NOT_FOUND_LEGACY as RESOURCE_NOT_FOUND_LEGACY
    from trio_mcp.types.error_codes import UNSUPPORTED_PROTOCOL_VERSION as UNSUPPORTED_PROTOCOL_VERSION
    from trio_mcp.types.error_codes import URL_ELICITATION_REQUIRED as URL_ELICITATION_REQUIRED
    from trio_mcp.types.errors import ElicitationRequiredErrorData as ElicitationRequiredErrorData
    from trio_mcp.types.errors import HeaderMismatchError as HeaderMismatchError
    from trio_mcp.types.errors import HeaderMismatchErrorObject as HeaderMismatchErrorObject
    from trio_mcp.types.errors import InternalError as InternalError
    from trio_mcp.types.errors import InvalidParamsError as InvalidParamsError
    from trio_mcp.types.errors import InvalidRequestError as InvalidRequestError
    from trio_mcp.types.errors import MethodNotFoundError as MethodNotFoundError
    from trio_mcp.types.errors import MissingRequiredClientCapabilityError as MissingRequiredClientCapabilityError
    from trio_mcp.types.errors import (
        MissingRequiredClientCapabilityErrorData as MissingRequiredClientCapabilityErrorData,
    )
    from trio_mcp.types.errors import (
        MissingRequiredClientCapabilityErrorObject as MissingRequiredClientCapabilityErrorObject,
    )
    from trio_mcp.types.errors import ParseError as ParseError
    from trio_mcp.types.errors import UnsupportedProtocolVersionError as UnsupportedProtocolVersionError
    from trio_mcp.types.errors import UnsupportedProtocolVersionErrorData as UnsupportedProtocolVersionErrorData
    from trio_mcp.types.errors import UnsupportedProtocolVersionErrorObject as UnsupportedProtocolVersionErrorObject
    from trio_mcp.types.errors import URLElicitationRequiredError as URLElicitationRequiredError
    from trio_mcp.types.errors import URLElicitationRequiredErrorObject as URLElicitationRequiredErrorObject
    from trio_mcp.types.handshake import InitializedNotification as InitializedNotification
    from trio_mcp.types.handshake import InitializeRequest as InitializeRequest
    from trio_mcp.types.handshake import InitializeRequestParams as InitializeRequestParams
    from trio_mcp.types.handshake import InitializeResult as InitializeResult
    from trio_mcp.types.handshake import PingRequest as PingRequest
    from trio_mcp.types.input_required import INPUT_REQUIRED as INPUT_REQUIRED
    from trio_mcp.types.input_required import InputRequest as InputRequest
    from trio_mcp.types.input_required import InputRequests as InputRequests
    from trio_mcp.types.input_required import InputRequiredResult as InputRequiredResult
    from trio_mcp.types.input_required import InputResponse as InputResponse
    from trio_mcp.types.input_required import InputResponses as InputResponses
    from trio_mcp.types.input_required import input_response_from_wire as input_response_from_wire
    from trio_mcp.types.jsonrpc import Error as Error
    from trio_mcp.types.jsonrpc import ErrorData as ErrorData
    from trio_mcp.types.jsonrpc import JSONRPCBatchRequest as JSONRPCBatchRequest
    from trio_mcp.types.jsonrpc import JSONRPCBatchResponse as JSONRPCBatchResponse
    from trio_mcp.types.jsonrpc import JSONRPCError as JSONRPCError
    from trio_mcp.types.jsonrpc import JSONRPCErrorResponse as JSONRPCErrorResponse
    from trio_mcp.types.jsonrpc import JSONRPCMessage as JSONRPCMessage
    from trio_mcp.types.jsonrpc import JSONRPCNotification as JSONRPCNotification
    from trio_mcp.types.jsonrpc import JSONRPCRequest as JSONRPCRequest
    from trio_mcp.types.jsonrpc import JSONRPCResponse as JSONRPCResponse
    from trio_mcp.types.jsonrpc import JSONRPCResultResponse as JSONRPCResultResponse
    from trio_mcp.types.logging import LoggingLevel as LoggingLevel
    from trio_mcp.types.logging import LoggingMessageNotification as LoggingMessageNotification
    from trio_mcp.types.logging import LoggingMessageNotificationParams as LoggingMessageNotificationParams
    from trio_mcp.types.logging import SetLevelRequest as SetLevelRequest
    from trio_mcp.types.logging import SetLevelRequestParams as SetLevelRequestParams
    from trio_mcp.types.messages import CacheableResult as CacheableResult
    from trio_mcp.types.messages import CacheScope as CacheScope
    from trio_mcp.types.messages import EmbeddableRequestMessage as EmbeddableRequestMessage
    from trio_mcp.types.messages import EmptyResult as EmptyResult
    from trio_mcp.types.messages import InputResponseRequestParams as InputResponseRequestParams
    from trio_mcp.types.messages import Notification as Notification
    from trio_mcp.types.messages import NotificationMessage as NotificationMessage
    from trio_mcp.types.messages import NotificationParams as NotificationParams
    from trio_mcp.types.messages import PaginatedRequest as PaginatedRequest
    from trio_mcp.types.messages import PaginatedRequestParams as PaginatedRequestParams
    from trio_mcp.types.messages import PaginatedResult as PaginatedResult
    from trio_mcp.types.messages import Request as Request
    from trio_mcp.types.messages import RequestMessage as RequestMessage
    from trio_mcp.types.messages import RequestParams as RequestParams
    from trio_mcp.types.messages import Result as Result
    from trio_mcp.types.meta_objects import MetaObject as MetaObject
    from trio_mcp.types.meta_objects import NotificationMetaObject as NotificationMetaObject
    from trio_mcp.types.meta_objects import RequestMetaObject as RequestMetaObject
    from trio_mcp.types.meta_objects import ResultMetaObject as ResultMetaObject
    from trio_mcp.types.meta_objects import SubscriptionsListenResultMetaObject as SubscriptionsListenResultMetaObject
    from trio_mcp.types.methods import MethodSpec as MethodSpec
    from trio_mcp.types.methods import Sender as Sender
    from trio_mcp.types.methods import method_spec as method_spec
    from trio_mcp.types.methods import methods_of as methods_of
    from trio_mcp.types.progress import ProgressNotification as ProgressNotification
    from trio_mcp.types.progress import ProgressNotificationParams as ProgressNotificationParams
    from trio_mcp.types.prompts import GetPromptRequest as GetPromptRequest
    from trio_mcp.types.prompts import GetPromptRequestParams as GetPromptRequestParams
    from trio_mcp.types.prompts import GetPromptResult as GetPromptResult
    from trio_mcp.types.prompts import ListPromptsRequest as ListPromptsRequest
    from trio_mcp.types.prompts import ListPromptsResult as ListPromptsResult
    from trio_mcp.types.prompts import Prompt as Prompt
    from trio_mcp.types.prompts import PromptArgument as PromptArgument
    from trio_mcp.types.prompts import PromptListChangedNotification as PromptListChangedNotification
    from trio_mcp.types.prompts import PromptMessage as PromptMessage
    from trio_mcp.types.resource_subscriptions import SubscribeRequest as SubscribeRequest
    from trio_mcp.types.resource_subscriptions import SubscribeRequestParams as SubscribeRequestParams
    from trio_mcp.types.resource_subscriptions import UnsubscribeRequest as UnsubscribeRequest
    from trio_mcp.types.resource_subscriptions import UnsubscribeRequestParams as UnsubscribeRequestParams
    from trio_mcp.types.resources import BlobResourceContents as BlobResourceContents
    from trio_mcp.types.resources import ListResourcesRequest as ListResourcesRequest
    from trio_mcp.types.resources import ListResourcesResult as ListResourcesResult
    from trio_mcp.types.resources import ListResourceTemplatesRequest as ListResourceTemplatesRequest
    from trio_mcp.types.resources import ListResourceTemplatesResult as ListResourceTemplatesResult
    from trio_mcp.types.resources import ReadResourceRequest as ReadResourceRequest
    from trio_mcp.types.resources import ReadResourceRequestParams as ReadResourceRequestParams
    from trio_mcp.types.resources import ReadResourceResult as ReadResourceResult
    from trio_mcp.types.resources import Resource as Resource
    from trio_mcp.types.resources import ResourceContents as ResourceContents
    from trio_mcp.types.resources import ResourceListChangedNotification as ResourceListChangedNotification
    from trio_mcp.types.resources import ResourceRequestParams as ResourceRequestParams
    from trio_mcp.types.resources import ResourceTemplate as ResourceTemplate
    from trio_mcp.types.resources import ResourceUpdatedNotification as ResourceUpdatedNotification
    from trio_mcp.types.resources import ResourceUpdatedNotificationParams as ResourceUpdatedNotificationParams
    from trio_mcp.types.resources import TextResourceContents as TextResourceContents
    from trio_mcp.types.responses import CallToolResultResponse as CallToolResultResponse
    from trio_mcp.types.responses import CompleteResultResponse as CompleteResultResponse
    from trio_mcp.types.responses import DiscoverResultResponse as DiscoverResultResponse
    from trio_mcp.types.responses import GetPromptResultResponse as GetPromptResultResponse
    from trio_mcp.types.responses import ListPromptsResultResponse as ListPromptsResultResponse
    from trio_mcp.types.responses import ListResourcesResultResponse as ListResourcesResultResponse
    from trio_mcp.types.responses import ListResourceTemplatesResultResponse as ListResourceTemplatesResultResponse
    from trio_mcp.types.responses import ListToolsResultResponse as ListToolsResultResponse
    from trio_mcp.types.responses import ReadResourceResultResponse as ReadResourceResultResponse
    from trio_mcp.types.responses import SubscriptionsListenResultResponse as SubscriptionsListenResultResponse
    from trio_mcp.types.roots import ListRootsRequest as ListRootsRequest
    from trio_mcp.types.roots import ListRootsRequestParams as ListRootsRequestParams
    from trio_mcp.types.roots import ListRootsResult as ListRootsResult
    from trio_mcp.types.roots import Root as Root
    from trio_mcp.types.roots import RootsListChangedNotification as RootsListChangedNotification
    from trio_mcp.types.sampling import CreateMessageRequest as CreateMessageRequest
    from trio_mcp.types.sampling import CreateMessageRequestParams as CreateMessageRequestParams
    from trio_mcp.types.sampling import CreateMessageResult as CreateMessageResult
    from trio_mcp.types.sampling import IncludeContext as IncludeContext
    from trio_mcp.types.sampling import ModelHint as ModelHint
    from trio_mcp.types.sampling import ModelPreferences as ModelPreferences
    from trio_mcp.types.sampling import SamplingMessage as SamplingMessage
    from trio_mcp.types.sampling import ToolChoice as ToolChoice
    from trio_mcp.types.subscriptions import SubscriptionFilter as SubscriptionFilter
    from trio_mcp.types.subscriptions import (
        SubscriptionsAcknowledgedNotification as SubscriptionsAcknowledgedNotification,
    )
    from trio_mcp.types.subscriptions import (
        SubscriptionsAcknowledgedNotificationParams as SubscriptionsAcknowledgedNotificationParams,
    )
    from trio_mcp.types.subscriptions import SubscriptionsListenRequest as SubscriptionsListenRequest
    from trio_mcp.types.subscriptions import SubscriptionsListenRequestParams as SubscriptionsListenRequestParams
    from trio_mcp.types.subscriptions import SubscriptionsListenResult as SubscriptionsListenResult
    from trio_mcp.types.task_support import ClientTasksCapability as ClientTasksCapability
    from trio_mcp.types.task_support import ClientTasksRequestsCapability as ClientTasksRequestsCapability
    from trio_mcp.types.task_support import ServerTasksCapability as ServerTasksCapability
    from trio_mcp.types.task_support import ServerTasksRequestsCapability as ServerTasksRequestsCapability
    from trio_mcp.types.task_support import TaskMetadata as TaskMetadata
    from trio_mcp.types.task_support import TasksElicitationCapability as TasksElicitationCapability
    from trio_mcp.types.task_support import TasksSamplingCapability as TasksSamplingCapability
    from trio_mcp.types.task_support import TasksToolsCapability as TasksToolsCapability
    from trio_mcp.types.task_support import TaskSupport as TaskSupport
    from trio_mcp.types.task_support import ToolExecution as ToolExecution
    from trio_mcp.types.tasks import CancelTaskRequest as CancelTaskRequest
    from trio_mcp.types.tasks import CancelTaskRequestParams as CancelTaskRequestParams
    from trio_mcp.types.tasks import CancelTaskResult as CancelTaskResult
    from trio_mcp.types.tasks import CreateTaskResult as CreateTaskResult
    from trio_mcp.types.tasks import GetTaskPayloadRequest as GetTaskPayloadRequest
    from trio_mcp.types.tasks import GetTaskPayloadRequestParams as GetTaskPayloadRequestParams
    from trio_mcp.types.tasks import GetTaskPayloadResult as GetTaskPayloadResult
    from trio_mcp.types.tasks import GetTaskRequest as GetTaskRequest
    from trio_mcp.types.tasks import GetTaskRequestParams as GetTaskRequestParams
    from trio_mcp.types.tasks import GetTaskResult as GetTaskResult
    from trio_mcp.types.tasks import ListTasksRequest as ListTasksRequest
    from trio_mcp.types.tasks import ListTasksResult as ListTasksResult
    from trio_mcp.types.tasks import RelatedTaskMetadata as RelatedTaskMetadata
    from trio_mcp.types.tasks import Task as Task
    from trio_mcp.types.tasks import TaskAugmentedRequestParams as TaskAugmentedRequestParams
    from trio_mcp.types.tasks import TaskRequestParams as TaskRequestParams
    from trio_mcp.types.tasks import TaskStatus as TaskStatus
    from trio_mcp.types.tasks import TaskStatusNotification as TaskStatusNotification
    from trio_mcp.types.tasks import TaskStatusNotificationParams as TaskStatusNotificationParams
    from trio_mcp.types.tools import CallToolRequest as CallToolRequest
    from trio_mcp.types.tools import CallToolRequestParams as CallToolRequestParams
    from trio_mcp.types.tools import CallToolResult as CallToolResult
    from trio_mcp.types.tools import ListToolsRequest as ListToolsRequest
    from trio_mcp.types.tools import ListToolsResult as ListToolsResult
    from trio_mcp.types.tools import Tool as Tool
    from trio_mcp.types.tools import ToolAnnotations as ToolAnnotations
    from trio_mcp.types.tools import ToolListChangedNotification as ToolListChangedNotification
    from trio_mcp.types.unions import ClientNotification as ClientNotification
    from trio_mcp.types.unions import ClientRequest as ClientRequest
    from trio_mcp.types.unions import ClientResult as ClientResult
    from trio_mcp.types.unions import ServerNotification as ServerNotification
    from trio_mcp.types.unions import ServerRequest as ServerRequest
    from trio_mcp.types.unions import ServerResult as ServerResult
    from trio_mcp.types.versions import LATEST as LATEST
    from trio_mcp.types.versions import LATEST_LEGACY as LATEST_LEGACY
    from trio_mcp.types.versions import LATEST_MODERN as LATEST_MODERN
    from trio_mcp.types.versions import LEGACY_REVISIONS as LEGACY_REVISIONS
    from trio_mcp.types.versions import MODERN_REVISIONS as MODERN_REVISIONS
    from trio_mcp.types.versions import REVISIONS as REVISIONS
    from trio_mcp.types.versions import Era as Era
    from trio_mcp.types.versions import at_least as at_least
    from trio_mcp.types.versions import era_of as era_of

# The same once more, for the interpreter; a test holds the two together.
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
    "methods": "MethodSpec Sender method_spec methods_of",
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
