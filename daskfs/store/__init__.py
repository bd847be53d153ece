"""Run and tile stores: Zarr arrays, shards, small objects, and one record for every finished unit."""
