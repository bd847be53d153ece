"""Graph construction from rows: neighbor lists, edges and weights."""
