"""The rules of the specification, as data."""
