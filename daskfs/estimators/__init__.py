"""Scikit-learn selectors, by what their criteria need."""
