"""The client's side of authorization: signing in, and staying signed in."""
