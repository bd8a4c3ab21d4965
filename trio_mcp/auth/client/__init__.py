"""Clients that sign in, and stay signed in."""
