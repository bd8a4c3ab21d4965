"""A construct of 2024-11-05 alone, where annotations were an object without a name."""

from trio_mcp.types._base import WireModel
from trio_mcp.types.common import Annotations

__all__ = ["Annotated"]


class Annotated(WireModel, only="2024-11-05"):
    """Base of constructs that can be annotated."""

    annotations: Annotations | None = None
