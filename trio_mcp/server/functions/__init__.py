"""Turning users' functions into what a server offers: signatures, schemas, arguments, dependencies."""
