"""Statistics of columns, of classes within them, and of pairs of them."""
