"""What outlives a connection: the event stores, and the SQLite file and thread that they use."""
