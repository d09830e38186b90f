"""Damaged recordings: cut, flipped, shuffled, with tables and columns gone. Nothing may be invented, nothing lost unsaid."""
