"""JSON Schema: validation at a bounded cost, and the flat schemas of forms."""
