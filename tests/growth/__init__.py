"""Very many calls: what they leave behind in the client's process and in the server's."""
