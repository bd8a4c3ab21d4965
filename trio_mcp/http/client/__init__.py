"""The client side of the HTTP transports."""
