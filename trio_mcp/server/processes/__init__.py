"""Serves with several processes: the supervisor, and what each of its child processes has from it."""
