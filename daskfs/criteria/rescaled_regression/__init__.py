"""Rescaled linear regression: RLSR, DSSFS and SSUFS."""
