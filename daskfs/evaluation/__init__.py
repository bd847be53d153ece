"""How good a ranking is: cross-validated models on its first features."""
