"""What a run meets in the field, tried many times at random: ``python -m tests.torture`` prints a table by kind."""
