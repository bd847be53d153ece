"""Results where they are needed: rankings as tables, and the data with selected features only."""
