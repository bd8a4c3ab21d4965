"""Measure the speed and behaviour of trio_mcp against a peer and a bare limit, in the same run.

Start with ``python -m benchmarks --help``; the README.md beside this file explains each figure.
"""
