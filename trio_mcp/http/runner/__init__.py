"""The HTTP server that runs the application: hypercorn on Trio, hardened."""
