"""The job file: its blocks and keys."""
