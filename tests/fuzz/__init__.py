"""Damaged recordings: cut, flipped, shuffled, tables and columns gone. Nothing is invented, nothing lost unsaid."""
