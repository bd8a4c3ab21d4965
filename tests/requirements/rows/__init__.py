"""One module for each topic of the specification, each with a `topic`."""
