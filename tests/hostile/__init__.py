"""A hostile corpus: seeded cases, each with what the specifications allow for it, against a real server."""
