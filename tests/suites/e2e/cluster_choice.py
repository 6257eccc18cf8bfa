"""Which cluster the scenarios run on.

    MOONKEEPER_E2E_KUBECONFIG   a cluster of your own
    MOONKEEPER_E2E_CLUSTER      kind or local; without it, kind where it works, else local
"""

import functools
import os

from clusters import GivenCluster
from kind_cluster import KindCluster
from local_cluster import LocalCluster

GIVEN, WANTED = "MOONKEEPER_E2E_KUBECONFIG", "MOONKEEPER_E2E_CLUSTER"
# In this order.
KINDS = {"kind": KindCluster, "local": LocalCluster}


class NoCluster(Exception):
    """No cluster can be made here, or an unknown one is wanted."""


@functools.cache
def choose():
    """The kind of cluster, and a sentence that names it and says why."""
    if os.environ.get(GIVEN):
        return GivenCluster, f"that of {GIVEN}"
    wanted = os.environ.get(WANTED)
    if wanted and wanted not in KINDS:
        raise NoCluster(f"{WANTED}={wanted}: it is {' or '.join(KINDS)}")
    refused = []
    for word in [wanted] if wanted else KINDS:
        if reason := KINDS[word].missing():
            refused.append(f"not {word}: {reason}")
            continue
        return KINDS[word], f"{word} ({f'asked for by {WANTED}' if wanted else '; '.join(refused) or 'Docker runs here'})"
    raise NoCluster(f"no cluster can be made here: {'; '.join(refused)}")
