"""What a stage is: its kind, its plan and cost, and how one of its units runs and is recorded."""
