"""Running units: the process they run in, the cluster they run on, waves, progress."""
