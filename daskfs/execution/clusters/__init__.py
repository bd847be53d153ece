"""Kinds of clusters, one module each: what it starts or joins, and what is said when that fails."""
