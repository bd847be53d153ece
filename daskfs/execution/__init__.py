"""Running units on a cluster or in this process: connections, submission, workers, progress, signals."""
