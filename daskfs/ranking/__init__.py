"""Ranking tables made from scores."""
