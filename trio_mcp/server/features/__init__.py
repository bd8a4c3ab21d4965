"""The features of a server, one file each, which can be read on their own."""
