"""A Ray cluster of two nodes of one machine: prints its address and stays until its input is closed."""

from __future__ import annotations

import os
import sys
from typing import Any


def main() -> None:
    from ray.cluster_utils import Cluster

    cores = max((os.cpu_count() or 2) // 2, 1)
    node = {"num_cpus": cores, "object_store_memory": 1 << 29, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(**node)
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
