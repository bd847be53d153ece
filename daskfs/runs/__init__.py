"""Runs of jobs: from the job to its plan and its report; their locks, status, repair, verification and comparison."""
