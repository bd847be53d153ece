"""Kinds of clusters, one module each: start or join, and the errors."""
