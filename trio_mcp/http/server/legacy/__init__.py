"""What only the legacy era needs of an HTTP server: sessions, streams, HTTP+SSE, event stores."""
