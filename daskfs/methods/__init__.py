"""The criteria: one small file per family, each adding rows to one registry."""
