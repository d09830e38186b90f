"""What an environment can record, which answers a missing option costs, and the exact capture commands."""

from gapscope.preflight.answers import SETTINGS, Setting
from gapscope.preflight.checks import Check, Preflight, preflight

__all__ = ["SETTINGS", "Check", "Preflight", "Setting", "preflight"]
