"""The features of a server, each in a file of its own that can be read without the others."""
