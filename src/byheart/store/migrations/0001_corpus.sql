-- Documents, passages, their vectors, the index's term table.
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL,
    encoder TEXT NOT NULL,
    encoder_fingerprint TEXT NOT NULL,
    analyzer_version INTEGER NOT NULL,
    width INTEGER NOT NULL
) STRICT;

-- Fitted parameters (fusion weight) and names of weight files (query adapter); they change with the epoch.
CREATE TABLE parameters (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- With a rowid, so that looking a page up (as each passage does when it is written) does not read its text.
CREATE TABLE documents (
    page TEXT PRIMARY KEY NOT NULL,
    origin TEXT NOT NULL,          -- the file the document came from; a JSONL file holds many
    title TEXT NOT NULL,
    media_type TEXT NOT NULL,
    text TEXT NOT NULL,            -- what spans count in
    content_hash TEXT NOT NULL,
    added_at TEXT NOT NULL         -- UTC, ISO 8601
) STRICT;
CREATE INDEX documents_by_origin ON documents (origin);

-- Files as they were last added: one that has not changed is not read again.
CREATE TABLE origins (origin TEXT PRIMARY KEY, file_hash TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE passages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- internal, never reused
    id TEXT NOT NULL UNIQUE,
    page TEXT NOT NULL REFERENCES documents (page) ON DELETE CASCADE,
    headings TEXT NOT NULL,        -- JSON list
    start INTEGER NOT NULL,
    "end" INTEGER NOT NULL,
    sheet INTEGER
) STRICT;
CREATE INDEX passages_by_page ON passages (page);

-- Forward rows of the embedded index: little-endian float32, int32 and float32.
CREATE TABLE vectors (
    passage_id TEXT PRIMARY KEY,
    dense BLOB NOT NULL,
    terms BLOB NOT NULL,
    weights BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Number of passages that hold a term. Terms that no passage holds any more are deleted.
CREATE TABLE terms (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    term TEXT NOT NULL UNIQUE,
    df INTEGER NOT NULL
) STRICT;
