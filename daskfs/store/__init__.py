"""Run and tile stores: Zarr arrays, small objects, and one record for every finished unit."""
