"""The ways in which a client sends an HTTP request and gets the response."""
