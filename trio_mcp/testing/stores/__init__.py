"""The contract of stores, as rules that any `trio_mcp.stores.Stores` can be checked against."""
