"""From a job and its data to a plan."""
