"""Criteria: the registry, one file per simple criterion, one folder per family with its stages and their costs."""
