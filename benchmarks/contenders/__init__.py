"""Contenders that run in a worker process: each module's `connect` yields a function that calls ``add``."""
