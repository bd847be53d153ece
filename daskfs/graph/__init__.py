"""Neighbour lists by partition, edges, weights; everything that turns rows into a graph."""
