"""Speed and behaviour of trio_mcp, measured against a peer and a bare limit in the same run.

Start with ``python -m benchmarks --help``; README.md beside this file says what each figure means.
"""
