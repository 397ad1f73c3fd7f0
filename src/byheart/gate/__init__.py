"""The gate: which way a question goes, at what risk, for what cost."""
