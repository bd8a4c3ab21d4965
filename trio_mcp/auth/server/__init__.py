"""The server's side of authorization: checking access tokens, and refusing requests without a valid one."""
