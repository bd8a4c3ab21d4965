"""JSON Schema: validation at a bounded cost, the flat schemas of forms, and the dialects of models."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.schema.dialects import (
        CONSTRUCTS as CONSTRUCTS,
        DIALECT_NAMES as DIALECT_NAMES,
        Construct as Construct,
        DialectName as DialectName,
        Fate as Fate,
        SchemaRefusal as SchemaRefusal,
        refusals as refusals,
    )
    from trio_mcp.schema.model_schema import ModelSchema as ModelSchema, SchemaLoss as SchemaLoss
    from trio_mcp.schema.model_tools import ModelTools as ModelTools
    from trio_mcp.schema.validator import SchemaError as SchemaError
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
