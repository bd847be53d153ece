"""Feature ranking on Dask for data that does not fit one machine.

Terms: a *tile* is a Zarr chunk of X; a *band* a row of tiles (some rows, all features); a *slab* a column of tiles (all
rows, some features); a *block* an array passed to a kernel; a *partition* the rows searched together for neighbors; a
*stage* one step of a run; a *unit* one task of a stage, the granularity of resume.
"""

from __future__ import annotations

import logging

from lazy_loader import attach_stub

logging.getLogger(__name__).addHandler(logging.NullHandler())

# __init__.pyi lists the public names; a name is imported when it is first used, as "daskfs --help" needs none of them
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
