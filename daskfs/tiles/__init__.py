"""Tiles of X from a source: tile shapes, ingestion, imputation, and statistics of rescaled values."""
