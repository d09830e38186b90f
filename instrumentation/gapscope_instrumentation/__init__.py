"""Marks for pipeline handoffs: the names and forms that gapscope reads.

Imports nothing but the standard library, so that it can live inside any job.
"""

from gapscope_instrumentation.contract import CONTRACT_VERSION, NVTX_DOMAIN, format_mark, pack_group, pack_pair

__all__ = ["CONTRACT_VERSION", "NVTX_DOMAIN", "format_mark", "pack_group", "pack_pair"]
