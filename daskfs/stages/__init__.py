"""Stages of a run: kinds, plans, memory costs, and the execution of one unit."""
