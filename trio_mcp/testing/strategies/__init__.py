from trio_mcp.testing.strategies.drawing import draws
from trio_mcp.testing.strategies.schemas import CannotGenerate, from_schema, simplest
