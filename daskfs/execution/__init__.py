"""Running units on a cluster or here: connections, waves, workers, progress, signals."""
