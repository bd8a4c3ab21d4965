"""HTTP from the server's side: the ASGI application."""
