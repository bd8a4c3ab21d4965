"""Several ways to one server: the best that works carries the session, and the next takes over when it fails."""
