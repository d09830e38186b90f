"""Small recordings built by hand, for pages that no real recording makes."""

from __future__ import annotations

import gapscope
from gapscope.testing import Recording, trace

BASE_NS = 1_795_970_127_000_000_000
HOSTILE = "</script><img/src=x/onerror=alert(1)>&amp;\"'"
KERNEL = f"void evil<{HOSTILE}"
"""A name that does not close is shown as it is."""


def source(path="rank0.json", kernel="produce_kernel", group="", base_ns=BASE_NS, **info):
    """Return the recording of a rank that hands over three tensors."""
    r = Recording(path, pid=10, tool="torch", **info)
    for i in (1, 2, 3):
        t = base_ns + i * 1_000_000
        r.mark(f"produce src=0 dst=1 seq={i} step={i}{group}", t, t + 100_000)
        r.kernel(t + 10_000, t + 50_000, t + 150_000, name=kernel)
        r.mark(f"submit src=0 dst=1 seq={i} step={i} bytes=64{group}", t + 110_000, t + 120_000)
        r.kernel(t + 111_000, t + 220_000, t + 230_000, stream=13, name="send")
    return r


def destination(path="rank1.json", kernel="consume_kernel", base_ns=BASE_NS, **info):
    """Return the recording of the rank that takes them."""
    r = Recording(path, pid=11, tool="torch", **info)
    for i in (1, 2, 3):
        t = base_ns + i * 1_000_000
        r.mark(f"receive src=0 dst=1 seq={i} step={i}", t, t + 10_000)
        r.kernel(t + 1_000, t + 240_000, t + 250_000, stream=13, name="receive")
        r.mark(f"consume src=0 dst=1 seq={i} step={i}", t + 11_000, t + 20_000)
        r.kernel(t + 12_000, t + 260_000, t + 300_000, name=kernel)
    return r


def hostile():
    """Return an analysis whose file, kernels, ranges and threads have names that are HTML."""
    a, b = source(f"{HOSTILE.replace('/', '')}.json", KERNEL), destination(kernel=KERNEL)
    for r in (a, b):
        r.thread(1, HOSTILE)
        r.mark("step", BASE_NS, None)
        r.rows["ranges"][-1].update(name=HOSTILE, kind="annotation", end_ns=BASE_NS + 5_000_000)
    return gapscope.analyze(trace(a, b))


def unaligned():
    """Return an analysis of two files of which one does not know what time it is."""
    return gapscope.analyze(trace(source(base_ns=5_000, clock="relative"), destination()))


def without_handoffs():
    """Return an analysis of a recording that has no marks and no communication."""
    r = Recording("alone.json", pid=10, tool="torch")
    r.kernel(BASE_NS, BASE_NS + 10, BASE_NS + 20)
    return gapscope.analyze(trace(r))
