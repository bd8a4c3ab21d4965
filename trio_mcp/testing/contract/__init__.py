"""The contract of a transport, as rules that any transport can be checked against."""
