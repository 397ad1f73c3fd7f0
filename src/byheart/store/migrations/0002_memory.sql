-- Facts: the ledger. Texts are NULL where ledger.text is false; the digests still tell a fact apart.
CREATE TABLE facts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- internal, never reused
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,                        -- question or claim
    answer TEXT,
    answer_digest BLOB NOT NULL,
    note TEXT NOT NULL,                        -- who said so, as given
    passage_id TEXT,                           -- where the answer stands, if in a document
    page TEXT,
    start INTEGER,
    "end" INTEGER,
    version INTEGER NOT NULL,
    changed_at TEXT NOT NULL,                  -- UTC, ISO 8601
    state TEXT NOT NULL,                       -- memorised, refused or stale
    reason TEXT NOT NULL                       -- why not memorised
) STRICT;
CREATE INDEX facts_by_page ON facts (page);
CREATE INDEX facts_by_passage ON facts (passage_id);

-- A fact's question and its paraphrases; position 0 is the question. A digest is of the normalised text.
CREATE TABLE fact_questions (
    fact INTEGER NOT NULL REFERENCES facts (number) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    text TEXT,
    digest BLOB NOT NULL,
    PRIMARY KEY (fact, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_questions_by_digest ON fact_questions (digest);

-- Former answers of a fact, the oldest first.
CREATE TABLE fact_versions (
    fact INTEGER NOT NULL REFERENCES facts (number) ON DELETE CASCADE,
    version INTEGER NOT NULL,
    answer TEXT,
    note TEXT NOT NULL,
    passage_id TEXT,
    changed_at TEXT NOT NULL,
    PRIMARY KEY (fact, version)
) STRICT, WITHOUT ROWID;

-- How often a fact was the answer. Counted apart from epochs: asking changes nothing that is answered.
CREATE TABLE fact_uses (
    fact INTEGER PRIMARY KEY REFERENCES facts (number) ON DELETE CASCADE,
    uses INTEGER NOT NULL
) STRICT;

-- One learned slot per question of a memorised fact. Numbers are reused: the smallest free one first.
CREATE TABLE slots (
    number INTEGER PRIMARY KEY,
    fact INTEGER NOT NULL REFERENCES facts (number) ON DELETE CASCADE,
    position INTEGER NOT NULL,                 -- of its question in fact_questions
    key BLOB NOT NULL,                         -- float16, width of the kernel's keys
    value BLOB NOT NULL,                       -- int8 codes of question and answer tokens, with their scales
    n_question INTEGER NOT NULL,               -- tokens of the value that stand for the question and the meaning of the answer
    n_answer INTEGER NOT NULL,                 -- tokens that spell the answer
    stamp INTEGER NOT NULL                     -- random number of the write that made it
) STRICT;
CREATE INDEX slots_by_fact ON slots (fact);
