"""Nearest neighbors of rows: metrics, distances and their bounds, exact search, search by cells."""
