"""Evaluation of rankings by cross-validated models on their first features."""
