"""The server side: `Server`, `Context`, and their parts."""
