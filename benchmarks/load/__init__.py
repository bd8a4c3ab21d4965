"""The load generators, written without any SDK, and the processes that only make load."""
