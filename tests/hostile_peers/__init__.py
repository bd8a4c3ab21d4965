"""Peers that answer anything with nothing, garbage, halves or floods, against both sides, on every transport.

Time is virtual: a wait without an end breaks a limit and hangs no test. What is busy while nothing happens is counted.
"""
