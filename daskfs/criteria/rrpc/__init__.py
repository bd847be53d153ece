"""RRPC, and the correlations of features that it shares with the redundancy filter."""
