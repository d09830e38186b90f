"""Damaged recordings: cut, flipped, shuffled, with tables and columns gone. Nothing may be invented or lost in silence."""
