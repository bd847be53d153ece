"""Scoring: one task per slab computes every criterion of the job."""
