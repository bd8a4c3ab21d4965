"""The version of the library; the build takes the number from this file."""

__version__ = "0.1.0"
