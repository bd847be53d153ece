"""Least-squares regression on centered and scaled rows, and its rescaled form."""
