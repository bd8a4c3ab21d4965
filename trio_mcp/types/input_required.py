"""Input in the modern era: a server replies to a request with questions (2026-07-28 basic/patterns/mrtr).

The client sends the request again, with its answers under the keys of the questions.
"""

from typing import Annotated, Any, Final

from pydantic import Field

from trio_mcp.types._base import WireModel
from trio_mcp.types.bases import Result
from trio_mcp.types.common import INPUT_REQUIRED
from trio_mcp.types.elicitation import ElicitRequest, ElicitResult
from trio_mcp.types.roots import ListRootsRequest, ListRootsResult
from trio_mcp.types.sampling import CreateMessageRequest, CreateMessageResult

__all__ = [
    "INPUT_REQUIRED",
    "InputRequest",
    "InputRequests",
    "InputRequiredResult",
    "InputResponse",
    "InputResponses",
    "input_response_from_wire",
]

# The questions are the requests that a legacy server sends as messages.
InputRequest = Annotated[CreateMessageRequest | ListRootsRequest | ElicitRequest, Field(discriminator="method")]
InputRequests = dict[str, InputRequest]
# There is no discriminator, as answers carry no type: the type follows from the question (`input_response_from_wire`).
InputResponse = CreateMessageResult | ListRootsResult | ElicitResult
InputResponses = dict[str, InputResponse]

_ANSWERS: Final[dict[str, type[CreateMessageResult | ListRootsResult | ElicitResult]]] = {
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
    "elicitation/create": ElicitResult,
}


class InputRequiredResult(Result, since="2026-07-28"):
    """The server's questions, and its state for the client to send back."""

    result_type: str = INPUT_REQUIRED
    # The questions are absent if the client only has to send the state back.
    input_requests: InputRequests | None = None
    # The state is opaque: the client must not read or change it.
    request_state: str | None = None


def input_response_from_wire(request: WireModel | str, data: Any) -> InputResponse:
    """Validate the answer to a question.

    Args:
        request: The question, or its method.
        data: The answer as plain JSON data.

    Raises:
        KeyError: If the protocol has no such question.
        pydantic.ValidationError: If the data is not a valid answer to the question.
    """
    method = request if isinstance(request, str) else str(getattr(request, "method", ""))
    return _ANSWERS[method].from_wire(data)
