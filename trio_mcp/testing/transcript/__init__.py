"""What happened between a client and a server, as data: events, the tape that they are recorded on, files of them."""
