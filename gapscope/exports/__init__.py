"""Other tools' formats: the run as a trace that they open."""

from gapscope.exports.perfetto import Written, write_perfetto

__all__ = ["Written", "write_perfetto"]
