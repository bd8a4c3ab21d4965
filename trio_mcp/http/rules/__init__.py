"""How a server judges an HTTP request, decided without I/O."""
