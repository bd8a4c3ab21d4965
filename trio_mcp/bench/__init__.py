"""Measures a server: chooses the tools to call, climbs a ladder of calls in flight, and says what that shows."""
