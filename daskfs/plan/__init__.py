"""Stages from tiles to scores, in order, and their execution on arrays in memory."""
