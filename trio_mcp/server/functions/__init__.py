"""The contracts of users' functions that a server offers: signatures, schemas, arguments and dependencies."""
