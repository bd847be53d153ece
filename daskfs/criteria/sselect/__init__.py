"""sSelect, and the choice of its trade-off."""
