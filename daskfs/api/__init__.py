"""Python functions: jobs and their results, ranking of data at hand, graphs, correlations, evaluation of selectors."""
