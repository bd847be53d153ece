"""Scikit-learn selectors, grouped by the inputs of their criteria."""
