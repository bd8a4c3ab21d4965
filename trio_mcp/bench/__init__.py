"""The benchmark of a server: chooses the tools to call, makes more and more calls at once, and reports the results."""
