"""Functions that Python calls: neighbor graphs, distance correlations, evaluations of selectors."""
