"""What a server does with an HTTP request, decided without I/O."""
