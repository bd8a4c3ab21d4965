"""The parts of an HTTP server that only the legacy era needs: sessions, resumable streams, HTTP+SSE, event stores."""
