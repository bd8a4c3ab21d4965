"""Groups of clients: many servers, used as one."""
