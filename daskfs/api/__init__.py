"""Python functions: neighbor graphs, distance correlations, evaluation of selectors."""
