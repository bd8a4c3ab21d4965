"""Where logins are kept."""
