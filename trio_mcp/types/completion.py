"""Completion: suggestions for an argument of a prompt or a resource template."""

from typing import Annotated, Literal

from pydantic import Field

from trio_mcp.types._base import WireModel, since
from trio_mcp.types.bases import BaseMetadata, RequestMessage, RequestParams, Result

__all__ = [
    "CompleteRequest",
    "CompleteRequestParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "PromptReference",
    "ResourceReference",
    "ResourceTemplateReference",
]


class PromptReference(BaseMetadata):
    """A reference to a prompt, by name."""

    type: Literal["ref/prompt"] = "ref/prompt"


class ResourceTemplateReference(WireModel):
    """A reference to a resource or a resource template, by URI."""

    type: Literal["ref/resource"] = "ref/resource"
    uri: str


# The schemas until 2025-03-26 use this name.
ResourceReference = ResourceTemplateReference


class CompletionArgument(WireModel):
    """The argument to complete, and the text that the user has typed so far."""

    name: str
    # The value may be empty.
    value: str


class CompletionContext(WireModel, since="2025-06-18"):
    """The values of other arguments that are already known."""

    arguments: dict[str, str] | None = None


class CompleteRequestParams(RequestParams):
    """The parameters of a completion request: the argument to complete, and its prompt or template."""

    ref: Annotated[PromptReference | ResourceTemplateReference, Field(discriminator="type")]
    argument: CompletionArgument
    context: CompletionContext | None = since("2025-06-18")


class CompleteRequest(RequestMessage):
    """A request for suggestions."""

    method: Literal["completion/complete"] = "completion/complete"
    params: CompleteRequestParams


class Completion(WireModel):
    """The suggestions: at most 100 in one result."""

    values: list[str]
    # The number of suggestions that exist, which may exceed those in `values`.
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result):
    """The result of a completion request."""

    completion: Completion
