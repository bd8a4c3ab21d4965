"""A server made of a recording: it answers again what was answered when the recording was made."""
