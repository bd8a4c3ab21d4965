"""Several ways to one server: the best one that works carries the session, and if it fails, the next takes over."""
