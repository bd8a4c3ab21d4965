"""In-memory contenders: each module opens a client and a server in one process and yields a way to call ``add``."""
