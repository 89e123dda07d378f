"""From data to problems, and from fitted weights to predictions."""
