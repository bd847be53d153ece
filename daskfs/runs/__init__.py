"""Runs of jobs: planning, execution, reports, locks, status, repair, verification and comparison."""
