"""The contract that every transport must fulfil, as rules that any transport can be checked against."""
