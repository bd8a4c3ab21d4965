"""The contract that all stores must fulfil, as rules that any `trio_mcp.stores.Stores` can be checked against."""
