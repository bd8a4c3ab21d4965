"""Standard input and output: a server as a child process, or this process as a server."""
