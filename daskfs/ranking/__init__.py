"""From scores to the ranking tables."""
