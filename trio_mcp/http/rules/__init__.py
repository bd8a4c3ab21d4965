"""The rules by which a server accepts or refuses an HTTP request, without any I/O."""
