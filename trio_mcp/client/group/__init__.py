"""Many servers as one."""
