"""A hostile corpus: seeded cases, each with the statuses that the specifications allow for it, against a real server."""
