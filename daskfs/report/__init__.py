"""The report of a run: what it found, as pages with plots; no worker calls anything here."""
