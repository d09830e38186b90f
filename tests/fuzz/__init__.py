"""Damaged recordings: cut, flipped, shuffled, with tables and columns gone. Nothing is invented, nothing lost unsaid."""
