"""What only the legacy era needs from an HTTP server: sessions, resumable streams, HTTP+SSE, event stores."""
