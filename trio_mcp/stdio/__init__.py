"""Links over standard input and output: to a server as a child process, or from this process as the server."""
