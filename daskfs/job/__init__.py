"""What a user writes: the job file, its blocks and keys."""
