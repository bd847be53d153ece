"""What would run, worked out before anything does: stages with their units, bytes and peak memory."""
