"""Completion: suggestions for an argument of a prompt or of a resource template."""

from typing import Annotated, Literal

from pydantic import Field

from trio_mcp.types._base import WireModel, since
from trio_mcp.types.common import BaseMetadata, RequestMessage, RequestParams, Result

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
    """Names a prompt."""

    type: Literal["ref/prompt"] = "ref/prompt"


class ResourceTemplateReference(WireModel):
    """Names a resource or a resource template by its URI."""

    type: Literal["ref/resource"] = "ref/resource"
    uri: str


# Its name until 2025-03-26
ResourceReference = ResourceTemplateReference


class CompletionArgument(WireModel):
    """The argument to complete, and what has been typed of it."""

    name: str
    value: str


class CompletionContext(WireModel, since="2025-06-18"):
    """Values of other arguments that are known already."""

    arguments: dict[str, str] | None = None


class CompleteRequestParams(RequestParams):
    """What to complete."""

    ref: Annotated[PromptReference | ResourceTemplateReference, Field(discriminator="type")]
    argument: CompletionArgument
    context: CompletionContext | None = since("2025-06-18")


class CompleteRequest(RequestMessage):
    """Asks for suggestions."""

    method: Literal["completion/complete"] = "completion/complete"
    params: CompleteRequestParams


class Completion(WireModel):
    """At most 100 suggestions, and how many there are."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result):
    """Suggestions for the argument."""

    completion: Completion
