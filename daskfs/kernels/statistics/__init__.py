"""Statistics of columns, of classes within columns, and of pairs of columns."""
