"""Neighbor lists, edges and weights: everything that turns rows into a graph."""
