-- Facts whose source is no document yet, by its name: one that is added later takes them.
CREATE INDEX facts_by_note ON facts (note) WHERE page IS NULL;
