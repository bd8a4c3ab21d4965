"""The stores in which logins are kept."""
