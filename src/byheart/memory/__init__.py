"""The memory: facts in learned slots that know what they know."""
