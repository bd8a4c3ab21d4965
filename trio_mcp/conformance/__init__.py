"""The check of a live target: what is sent, over what, and what is made of it."""
