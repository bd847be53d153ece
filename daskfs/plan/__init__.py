"""The chain from tiles to scores: its stages in order, and running them on arrays in memory."""
