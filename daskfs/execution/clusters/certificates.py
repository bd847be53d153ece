"""TLS certificates of the processes of a cluster: made for one run, or named by Dask's configuration."""

from __future__ import annotations

import logging
from typing import Any

from distributed.security import Security

from daskfs.errors import ClusterError
from daskfs.execution.cluster import ClusterSettings

logger = logging.getLogger(__name__)


def made_for_the_run(settings: ClusterSettings) -> Security | None:
    """Return a temporary certificate for a cluster started for a run; None, with a warning, if the job disables TLS."""
    if settings.tls is not False:
        return Security.temporary()
    who = "any user of this machine" if settings.slurm is None else "anyone who reaches this machine by the network"
    logger.warning("cluster.tls is false: while this cluster is there, %s can run code as you through it.", who)
    return None


def configured_certificates(address: str) -> Security | None:
    """Return the certificates in Dask's configuration, None for an address without TLS.

    Raise :class:`ClusterError` if they are missing or invalid.
    """
    if not address.startswith("tls://"):
        return None
    security: Any = Security(require_encryption=True)
    named = {"ca-file": security.tls_ca_file, "client.cert": security.tls_client_cert}
    lacking = [f"distributed.comm.tls.{key}" for key, value in named.items() if not value]
    if lacking:
        msg = (
            f"the scheduler at {address} asks for TLS, and Dask's configuration does not name {' and '.join(lacking)}: "
            "set them in ~/.config/dask, or in the environment (DASK_DISTRIBUTED__COMM__TLS__CA_FILE=...)."
        )
        raise ClusterError(msg)
    try:
        security.get_connection_args("client")
    except (OSError, ValueError) as error:
        msg = (
            "the certificates that Dask's configuration names below distributed.comm.tls, as ca-file, client.cert and "
            f"client.key, cannot be used: {error}."
        )
        raise ClusterError(msg) from error
    return security
