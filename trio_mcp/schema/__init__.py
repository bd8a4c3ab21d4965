"""JSON Schema: validation within bounds, and the flat schemas of forms."""
