-- The words a fact rests on, where they stand in no document of the knowledge base: what is read when the source is elsewhere.
CREATE TABLE fact_evidence (
    fact INTEGER PRIMARY KEY REFERENCES facts (number) ON DELETE CASCADE,
    text TEXT NOT NULL
) STRICT;
