"""Training: one story per file, read from top to bottom."""
