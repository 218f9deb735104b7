-- What is observed through OpenTelemetry.
ALTER TABLE runs ADD COLUMN source TEXT;
ALTER TABLE runs ADD COLUMN partial INTEGER NOT NULL DEFAULT 0 CHECK (partial IN (0, 1));
CREATE TABLE spans (
    owner  TEXT NOT NULL,
    trace  TEXT NOT NULL, -- 32 hexadecimal digits
    span   TEXT NOT NULL, -- 16 of them
    run_id INTEGER REFERENCES runs (id) ON DELETE CASCADE, -- NULL while it waits for the root of its trace
    call   TEXT,          -- of a tool: the model's id of the call
    step   TEXT,          -- the key of the step that it is in; NULL where it is in none
    said   TEXT,          -- JSON: what was taken over, while it waits
    PRIMARY KEY (owner, trace, span)
) STRICT, WITHOUT ROWID;
CREATE INDEX spans_of_run ON spans (run_id);
CREATE TABLE observed (
    run_id  INTEGER PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    ends_at TEXT,             -- when it ends if nothing more comes; NULL once it has
    told_ns INTEGER NOT NULL, -- the end of the newest span that the drift detectors have seen, in nanoseconds
    last_at TEXT NOT NULL,    -- the end of its newest span
    failed  INTEGER NOT NULL CHECK (failed IN (0, 1)) -- its newest root failed
) STRICT;
CREATE INDEX observed_ending ON observed (ends_at) WHERE ends_at IS NOT NULL;
CREATE TABLE tokens (
    owner      TEXT NOT NULL,
    id         TEXT NOT NULL, -- the part of it that is no secret
    note       TEXT NOT NULL,
    hash       TEXT NOT NULL, -- SHA-256 of the secret part
    created_at TEXT NOT NULL,
    revoked_at TEXT,
    PRIMARY KEY (owner, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX tokens_by_id ON tokens (id);
