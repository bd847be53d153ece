"""Exports of rankings as tables, and of the data with only the selected features."""
