"""Run and tile stores: arrays in Zarr, small objects beside them, one record for every finished unit."""
