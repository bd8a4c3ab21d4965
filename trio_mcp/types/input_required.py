"""A modern server that needs something from the client answers with questions (2026-07-28 basic/patterns/mrtr).

The client answers each question under the question's own key, and sends the request again with the answers.
"""

from typing import Annotated, Any, Final

from pydantic import Field

from trio_mcp.types._base import WireModel
from trio_mcp.types.common import INPUT_REQUIRED, Result
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

InputRequest = Annotated[CreateMessageRequest | ListRootsRequest | ElicitRequest, Field(discriminator="method")]
InputRequests = dict[str, InputRequest]
InputResponse = CreateMessageResult | ListRootsResult | ElicitResult
InputResponses = dict[str, InputResponse]

_ANSWERS: Final[dict[str, type[CreateMessageResult | ListRootsResult | ElicitResult]]] = {
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
    "elicitation/create": ElicitResult,
}


class InputRequiredResult(Result, since="2026-07-28"):
    """The server's questions, and its state, which the client passes back unread."""

    result_type: str = INPUT_REQUIRED
    input_requests: InputRequests | None = None
    request_state: str | None = None


def input_response_from_wire(request: WireModel | str, data: Any) -> InputResponse:
    """Validate the answer to a question.

    Args:
        request: The question, or its method.
        data: The answer as plain JSON data.

    Raises:
        KeyError: No such question exists.
        pydantic.ValidationError: The data does not answer this question.
    """
    method = request if isinstance(request, str) else str(getattr(request, "method", ""))
    return _ANSWERS[method].from_wire(data)
