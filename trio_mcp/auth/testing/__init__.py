"""An authorization server for tests and demos; never for production."""
