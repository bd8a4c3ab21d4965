"""Standard input and output: a server as a child process, or as this process."""
