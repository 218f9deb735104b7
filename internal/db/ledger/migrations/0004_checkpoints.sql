-- A small routine checkpoint takes the row of the one that goes because of it, so
-- rows are no longer numbered by their saves. Two owners may have checkpoints of
-- one id. The guards are made anew by schema.sql.
DROP VIEW IF EXISTS audit_violations;
CREATE TABLE checkpoints_new (
    slot         INTEGER PRIMARY KEY,       -- run_id << 32, and the seq of the first checkpoint that had the row
    n            INTEGER NOT NULL,          -- the row of the audit log that records the save: the order of all saves
    id           TEXT NOT NULL,             -- UUID of version 7; no two of an owner have the same
    run_id       INTEGER NOT NULL REFERENCES runs (id),
    seq          INTEGER NOT NULL,          -- 1, 2, … in its run, in the order of acknowledgement
    kind         TEXT NOT NULL CHECK (kind IN ('routine', 'pre_operation', 'recovery')),
    parent       TEXT,                      -- the checkpoint that this state came from; it may be gone
    created_at   TEXT NOT NULL,
    size         INTEGER NOT NULL,          -- bytes of the state
    stored_size  INTEGER NOT NULL,          -- bytes that the save added
    sha256       TEXT NOT NULL CHECK (length(sha256) = 64),
    content_type TEXT NOT NULL,
    labels       TEXT NOT NULL DEFAULT '{}',
    metadata     TEXT NOT NULL DEFAULT '{}',
    step         TEXT,
    operation    TEXT,                      -- the key of the operation that it was taken for
    pinned       INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),
    suspect      INTEGER NOT NULL DEFAULT 0 CHECK (suspect IN (0, 1)), -- saved after the first evidence of drift
    state_of     INTEGER,                   -- the seq of the earlier checkpoint whose state this is once more; NULL: its own
    program      TEXT,                      -- {"source", "executed"}
    pieces       TEXT,
    body         BLOB
) STRICT;
INSERT INTO checkpoints_new SELECT run_id << 32 | seq, n, id, run_id, seq, kind, parent, created_at, size, stored_size, sha256, content_type, labels, metadata, step, operation,
    pinned, suspect, state_of, program, pieces, body
FROM checkpoints ORDER BY run_id, seq;
CREATE TABLE graph_kept AS SELECT o.run_id << 32 | o.seq AS slot, g.run_id, g.id, g.parent, g.channels
FROM graph_checkpoints g JOIN checkpoints o ON o.n = g.n;
DROP TABLE graph_checkpoints;
DROP TABLE checkpoints;
ALTER TABLE checkpoints_new RENAME TO checkpoints;
CREATE TABLE "graph_checkpoints" (
    slot     INTEGER PRIMARY KEY REFERENCES checkpoints (slot) ON DELETE CASCADE, -- it goes with its checkpoint, whoever removes that
    run_id   INTEGER NOT NULL REFERENCES graph_threads (run_id) ON DELETE CASCADE,
    id       TEXT NOT NULL, -- LangGraph's; they sort by time
    parent   TEXT,          -- LangGraph's id of the checkpoint that it came from; it may be gone
    channels TEXT NOT NULL, -- a JSON array: those that have a value in it
    UNIQUE (run_id, id)
) STRICT;
INSERT INTO graph_checkpoints SELECT slot, run_id, id, parent, channels FROM graph_kept;
DROP TABLE graph_kept;
