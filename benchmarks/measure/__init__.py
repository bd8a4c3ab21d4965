"""Processes, samples and statistics: how anything is measured, independent of what it is."""
