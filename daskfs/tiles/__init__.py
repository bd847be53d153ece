"""From a source to tiles of X: how it is cut, filling, and statistics of rescaled values."""
