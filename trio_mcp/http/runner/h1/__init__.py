"""HTTP/1.1 without hypercorn: h11 or httptools parses heads, and one task serves a connection."""
