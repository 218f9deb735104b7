-- The tables of schema version 6, as they were released.

CREATE TABLE act_texts (
    n       INTEGER PRIMARY KEY, -- the row of acts
    salt    BLOB NOT NULL,       -- 16 random bytes
    subject TEXT,                -- where it is no UUID
    reason  TEXT,
    detail  TEXT                 -- a JSON object
) STRICT;

CREATE TABLE acts (
    n       INTEGER PRIMARY KEY, -- 1, 2, … without gaps, going on from audit_log_3
    at      INTEGER NOT NULL,    -- milliseconds since 1970, UTC
    who     INTEGER NOT NULL REFERENCES whos (id),
    pid     INTEGER NOT NULL,
    action  INTEGER NOT NULL REFERENCES words (id),
    place   INTEGER REFERENCES places (id),
    outcome INTEGER REFERENCES words (id), -- an error code; NULL is done
    retries INTEGER,             -- NULL is 0
    kind    INTEGER,             -- of a save: 1 routine, 2 pre_operation, 3 recovery
    seq     INTEGER,             -- of a save: its number in its run
    parent  INTEGER,             -- of a save: the row of the save that it comes from
    size    INTEGER,             -- of a save: bytes of the state
    stored  INTEGER,             -- of a save: bytes that it added; NULL is size
    gone    INTEGER,             -- the row of the save whose checkpoint went
    why     INTEGER REFERENCES words (id), -- it went
    subject BLOB,                -- what it was done to: the 16 bytes of a UUID
    sha256  BLOB,                -- of a save: 32 bytes, of the state
    rest    BLOB,                -- of a save: 16 bytes, of its content type, metadata, step and program; NULL where they have the defaults
    beside  BLOB,                -- 32 bytes, of the row's texts in act_texts; NULL for none
    more    TEXT,                -- JSON, what has no column; NULL mostly
    hash    BLOB NOT NULL        -- 32 bytes: SHA-256 of the row's text in audit_chain
) STRICT;

CREATE TABLE agents (
    id         INTEGER PRIMARY KEY,
    owner      TEXT NOT NULL,              -- uid:1000, or a Windows SID
    name       TEXT NOT NULL,
    created_at TEXT NOT NULL,
    policy     TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(policy)), -- what counts: policy_own over what policies has for its owner and for all; what is missing has the default
    policy_at  TEXT NOT NULL,              -- when what counts last changed
    recovery_keep_s INTEGER NOT NULL DEFAULT 604800, -- the policy's recovery_keep in seconds, for audit_violations
    policy_own TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(policy_own)), -- what was set for this agent itself
    pre_operation_keep_s INTEGER NOT NULL DEFAULT 604800, -- the policy's pre_operation_keep in seconds; 0 keeps them
    uid        TEXT,                       -- UUID of version 7: no other agent of any database has it
    UNIQUE (owner, name)
) STRICT;

CREATE TABLE audit_archives (
    to_n    INTEGER PRIMARY KEY,
    from_n  INTEGER NOT NULL,
    hash    TEXT NOT NULL,              -- of row to_n
    name    TEXT NOT NULL,              -- of the file, without its folder
    sha256  TEXT NOT NULL,              -- of the file
    bytes   INTEGER NOT NULL,
    at      TEXT NOT NULL,
    who     TEXT NOT NULL,
    removed INTEGER NOT NULL DEFAULT 0  -- rows that are gone from here
) STRICT;

CREATE TABLE audit_head (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    n    INTEGER NOT NULL,
    hash TEXT NOT NULL
) STRICT;

CREATE TABLE audit_links (
    n    INTEGER PRIMARY KEY,
    hash TEXT NOT NULL
) STRICT;

CREATE TABLE "audit_log_3" (
    n       INTEGER PRIMARY KEY, -- 1, 2, … without gaps
    at      TEXT NOT NULL,
    who     TEXT NOT NULL,
    pid     INTEGER NOT NULL,
    action  TEXT NOT NULL,
    owner   TEXT,
    agent   TEXT,
    run     TEXT,
    subject TEXT,
    outcome TEXT NOT NULL,
    reason  TEXT,
    retries INTEGER NOT NULL,
    detail  TEXT NOT NULL,
    prev    TEXT NOT NULL,
    hash    TEXT NOT NULL
) STRICT;

CREATE TABLE checkpoint_trees (
    n       INTEGER NOT NULL,
    place   INTEGER NOT NULL, -- 1, 2, …
    run_id  INTEGER NOT NULL REFERENCES runs (id),
    seq     INTEGER NOT NULL,
    tree_id INTEGER,          -- NULL: it was let go of
    gone    TEXT,             -- why
    PRIMARY KEY (n, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE "checkpoints" (
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

CREATE TABLE content_leases (
    content_id INTEGER PRIMARY KEY,
    until      TEXT NOT NULL
) STRICT;

CREATE TABLE content_secrets (
    content_id INTEGER PRIMARY KEY,
    kind       TEXT NOT NULL
) STRICT;

CREATE TABLE content_uses (
    used    INTEGER NOT NULL, -- the content whose row has the bytes
    used_by INTEGER NOT NULL,
    PRIMARY KEY (used, used_by)
) STRICT, WITHOUT ROWID;

CREATE TABLE contents (
    id       INTEGER PRIMARY KEY,
    agent_id INTEGER NOT NULL REFERENCES agents (id),
    sha256   BLOB CHECK (length(sha256) = 32), -- NULL: the content is gone, and others still use bytes of its row
    size     INTEGER NOT NULL,                 -- bytes of the content
    pieces   TEXT,
    fresh    INTEGER NOT NULL,                 -- bytes of data once they are inflated
    data     BLOB NOT NULL
) STRICT;

CREATE TABLE deliveries (
    notice   INTEGER NOT NULL REFERENCES notices (n) ON DELETE CASCADE,
    hook     TEXT NOT NULL, -- its name in the settings
    state    TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'dead')),
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at  TEXT NOT NULL, -- of a pending one
    done_at  TEXT,
    error    TEXT,          -- of the last attempt, without anything secret
    PRIMARY KEY (notice, hook)
) STRICT, WITHOUT ROWID;

CREATE TABLE event_batches (
    owner  TEXT NOT NULL,
    n      INTEGER NOT NULL,
    run_id INTEGER NOT NULL,
    first  INTEGER NOT NULL, -- its events, by seq
    last   INTEGER NOT NULL,
    PRIMARY KEY (owner, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    run_id  INTEGER NOT NULL REFERENCES runs (id),
    seq     INTEGER NOT NULL,
    at      TEXT NOT NULL,
    type    TEXT NOT NULL,
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    batch   INTEGER, -- of event_batches; NULL for one that was imported, or is older
    PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE findings (
    id           TEXT NOT NULL PRIMARY KEY,
    run_id       INTEGER NOT NULL REFERENCES runs (id),
    at           TEXT NOT NULL,
    rule         TEXT NOT NULL,
    severity     TEXT NOT NULL CHECK (severity IN ('info', 'warn', 'critical')),
    message      TEXT NOT NULL,
    advice       TEXT,    -- for the model: what to do now
    evidence     TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(evidence)),
    checkpoint   TEXT,    -- the one in which it was seen, or the recovery checkpoint that was made because of it
    since_seq    INTEGER, -- of a critical one: the run's newest checkpoint before the evidence began
    until_seq    INTEGER, -- the run's newest checkpoint when it was closed
    closed       TEXT CHECK (closed IN ('dismissed', 'resumed', 'restored', 'begun_anew')), -- by what; NULL while it is open
    closed_at    TEXT,
    dismissed_at TEXT,    -- an operator said that it was none, also after it was closed otherwise
    dismissed_by TEXT
) STRICT;

CREATE TABLE "graph_checkpoints" (
    slot     INTEGER PRIMARY KEY REFERENCES checkpoints (slot) ON DELETE CASCADE, -- it goes with its checkpoint, whoever removes that
    run_id   INTEGER NOT NULL REFERENCES graph_threads (run_id) ON DELETE CASCADE,
    id       TEXT NOT NULL, -- LangGraph's; they sort by time
    parent   TEXT,          -- LangGraph's id of the checkpoint that it came from; it may be gone
    channels TEXT NOT NULL, -- a JSON array: those that have a value in it
    UNIQUE (run_id, id)
) STRICT;

CREATE TABLE graph_threads (
    run_id   INTEGER PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    agent_id INTEGER NOT NULL REFERENCES agents (id),
    thread   TEXT NOT NULL,
    ns       TEXT NOT NULL, -- '' is the root graph
    UNIQUE (agent_id, thread, ns)
) STRICT;

CREATE TABLE graph_writes (
    run_id     INTEGER NOT NULL REFERENCES graph_threads (run_id) ON DELETE CASCADE,
    checkpoint TEXT NOT NULL, -- LangGraph's id
    task       TEXT NOT NULL,
    idx        INTEGER NOT NULL,
    path       TEXT NOT NULL,
    channel    TEXT NOT NULL,
    type       TEXT NOT NULL,
    size       INTEGER NOT NULL,
    crc        INTEGER NOT NULL, -- CRC-32C of the bytes
    data       BLOB NOT NULL,
    PRIMARY KEY (run_id, checkpoint, task, idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
    key         TEXT NOT NULL,
    agent_id    INTEGER NOT NULL,
    fingerprint TEXT NOT NULL, -- SHA-256 of what was asked
    reply       TEXT NOT NULL,
    created_at  TEXT NOT NULL,
    PRIMARY KEY (key, agent_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE ids (
    id       BLOB NOT NULL,      -- 16 bytes of a UUID
    agent_id INTEGER NOT NULL,
    n        INTEGER NOT NULL,   -- the row of acts
    print    BLOB NOT NULL,      -- 16 bytes, of a SHA-256 of what was asked
    PRIMARY KEY (id, agent_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE notices (
    n     INTEGER PRIMARY KEY,
    id    TEXT NOT NULL UNIQUE, -- the receiver sees it: the same at each attempt
    at    TEXT NOT NULL,
    type  TEXT NOT NULL,
    owner TEXT,
    agent TEXT,
    run   TEXT,
    body  TEXT NOT NULL CHECK (json_valid(body))
) STRICT;

CREATE TABLE observed (
    run_id  INTEGER PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    ends_at TEXT,             -- when it ends if nothing more comes; NULL once it has
    told_ns INTEGER NOT NULL, -- the end of the newest span that the drift detectors have seen, in nanoseconds
    last_at TEXT NOT NULL,    -- the end of its newest span
    failed  INTEGER NOT NULL CHECK (failed IN (0, 1)) -- its newest root failed
) STRICT;

CREATE TABLE operations (
    id         INTEGER PRIMARY KEY,
    run_id     INTEGER NOT NULL REFERENCES runs (id),
    key        TEXT NOT NULL,
    attempt    INTEGER NOT NULL DEFAULT 1,
    name       TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('open', 'succeeded', 'failed', 'uncertain')),
    checkpoint TEXT,
    started_at TEXT NOT NULL,
    ended_at   TEXT,
    result     TEXT,
    error      TEXT,
    UNIQUE (run_id, key, attempt)
) STRICT;

CREATE TABLE owner_changes (
    agent_id   INTEGER NOT NULL,
    n          INTEGER NOT NULL, -- the row of the audit log
    uid        TEXT NOT NULL,    -- the agent's; both rows have it as their subject
    agent      TEXT NOT NULL,
    from_owner TEXT NOT NULL,
    to_owner   TEXT NOT NULL,
    PRIMARY KEY (agent_id, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE places (
    id    INTEGER PRIMARY KEY,
    n     INTEGER NOT NULL,
    owner TEXT NOT NULL, -- '' for none, as in the two others
    agent TEXT NOT NULL,
    run   TEXT NOT NULL,
    UNIQUE (owner, agent, run)
) STRICT;

CREATE TABLE policies (
    owner  TEXT NOT NULL PRIMARY KEY,
    policy TEXT NOT NULL CHECK (json_valid(policy)),
    set_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE prompts (
    id          TEXT NOT NULL PRIMARY KEY,
    run_id      INTEGER NOT NULL REFERENCES runs (id),
    at          TEXT NOT NULL,
    question    TEXT NOT NULL,
    reason      TEXT NOT NULL,
    checkpoint  TEXT,
    memory_diff TEXT,
    choice      TEXT CHECK (choice IN ('resume', 'reinitialize', 'abandon')), -- of a decision
    answered_at TEXT,
    answered_by TEXT, -- daemon: it was withdrawn
    kind        TEXT NOT NULL DEFAULT 'decision' CHECK (kind IN ('decision', 'question')), -- decision: how to go on with a run; question: one of the run's own
    key         TEXT,    -- of a question: asked again under it, it is the same one
    choices     TEXT,    -- a JSON array: the only answers; NULL for any
    schema      TEXT,    -- the JSON Schema of data
    expires_at  TEXT,    -- when it can be answered no more
    asked_seq   INTEGER, -- the run's newest checkpoint when it was asked,
    answered_seq INTEGER, -- and when it was answered
    answer      TEXT,    -- the choice
    data        TEXT,    -- what came with it
    retired     INTEGER NOT NULL DEFAULT 0 CHECK (retired IN (0, 1)) -- the run was begun anew since
) STRICT;

CREATE TABLE run_labels (
    run_id INTEGER NOT NULL,
    key    TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_segments (
    run_id   INTEGER NOT NULL,
    n        INTEGER NOT NULL, -- 1, 2, … in its run; the newest 1,000 are kept
    attempt  INTEGER NOT NULL,
    pid      INTEGER,          -- of the owner
    began_at TEXT NOT NULL,
    ended_at TEXT,             -- the last sign of life in it; NULL while it lasts
    how      TEXT,             -- the status that the run got by its end
    PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_words (
    run_id INTEGER NOT NULL,
    word   TEXT NOT NULL,
    PRIMARY KEY (run_id, word)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    id            INTEGER PRIMARY KEY,
    agent_id      INTEGER NOT NULL REFERENCES agents (id),
    name          TEXT NOT NULL,
    status        TEXT NOT NULL DEFAULT 'running' CHECK (status IN
        ('running', 'suspended', 'awaiting_continuation', 'interrupted', 'timed_out', 'completed', 'failed')),
    epoch         INTEGER NOT NULL DEFAULT 1, -- the fencing token: a write that names an older one is refused
    attempt       INTEGER NOT NULL DEFAULT 1, -- how often it was begun or resumed
    started_at    TEXT NOT NULL,
    updated_at    TEXT NOT NULL,
    ended_at      TEXT,
    last_seq      INTEGER NOT NULL DEFAULT 0, -- of its checkpoints; never reused
    removed       INTEGER NOT NULL DEFAULT 0, -- checkpoints that are gone: last_seq = what is there + removed
    stored_bytes  INTEGER NOT NULL DEFAULT 0, -- of all its states, as stored
    base_seq      INTEGER NOT NULL DEFAULT 0, -- it was begun anew after this one: what came before is history only
    head          TEXT,                       -- the checkpoint that the next save comes from
    workflow      TEXT,
    pid           INTEGER,                    -- of the owner, with what tells it from a later process of that number
    process_start TEXT,
    boot_id       TEXT,
    parent_run    TEXT,
    forked_from   TEXT,                       -- the checkpoint that a fork began with
    segment_at    TEXT,                       -- when the present segment began; NULL between two
    interrupted_at TEXT,                      -- when it was last found without its owner
    accumulated_ms INTEGER NOT NULL DEFAULT 0, -- time over all segments before
    heartbeat_at  TEXT,
    heartbeat_timeout_ms INTEGER NOT NULL DEFAULT 0, -- 0: not watched
    progress_timeout_ms  INTEGER NOT NULL DEFAULT 0,
    progress      REAL,
    progress_at   TEXT,
    goal          TEXT,
    first_goal    TEXT,                       -- the goal that it began with, or that a goal_update event made its own
    steps_ended   INTEGER NOT NULL DEFAULT 0, -- steps that ended, every attempt of each, and what they used
    input_tokens  INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cost_usd      REAL NOT NULL DEFAULT 0,
    stretch       INTEGER NOT NULL DEFAULT 1, -- drift is counted anew in each: it begins where the run goes back or is taken over
    stretch_seq   INTEGER NOT NULL DEFAULT 0, -- last_seq when it began
    stretch_from  INTEGER NOT NULL DEFAULT 0, -- the checkpoint that it goes on from, by seq; 0 for none
    back_seq      INTEGER,                    -- drift may be beginning: the newest clean checkpoint up to this one is kept; NULL while it is not
    continuation_prompt TEXT,
    external_session    TEXT,
    labels        TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(labels)),
    result        TEXT,
    error         TEXT,
    last_event    INTEGER NOT NULL DEFAULT 0,
    source        TEXT,                       -- otlp: it is observed through OpenTelemetry; NULL: its agent speaks for it
    partial       INTEGER NOT NULL DEFAULT 0 CHECK (partial IN (0, 1)), -- of an observed one: not all of it was sent
    uid           TEXT,                       -- UUID of version 7: no other run of any database has it
    UNIQUE (agent_id, name)
) STRICT;

CREATE TABLE segments (
    id     INTEGER PRIMARY KEY, -- segments_from of meta and the number of the row of the audit log that records the save: never used again
    run_id INTEGER NOT NULL REFERENCES runs (id),
    size   INTEGER NOT NULL,
    data   BLOB NOT NULL
) STRICT;

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

CREATE TABLE steps (
    id           INTEGER PRIMARY KEY,
    run_id       INTEGER NOT NULL REFERENCES runs (id),
    key          TEXT NOT NULL,
    attempt      INTEGER NOT NULL DEFAULT 1,
    name         TEXT NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('started', 'succeeded', 'failed', 'interrupted')),
    args         TEXT,
    result       TEXT,
    error        TEXT,
    started_at   TEXT NOT NULL,
    ended_at     TEXT,
    duration_ms  INTEGER,
    input_tokens INTEGER,
    output_tokens INTEGER,
    cost_usd     REAL,
    progress     REAL,
    after_seq    INTEGER NOT NULL DEFAULT 0, -- the run's newest checkpoint when it ended, or when it began
    stretch      INTEGER NOT NULL DEFAULT 0, -- of its run when it ended; 0 for one that nobody watched
    failures     INTEGER NOT NULL DEFAULT 0, -- earlier attempts of this key that failed in this stretch
    sig          TEXT,                       -- what the drift detectors keep of it: a hash of the call,
    res          TEXT,                       -- one of what came out, without what differs each time,
    cause        TEXT,                       -- one of what was complained of,
    unparsable   INTEGER NOT NULL DEFAULT 0 CHECK (unparsable IN (0, 1)), -- and whether it began like JSON and was none
    turn         TEXT,                       -- the model's: the id of the answer that made this call; NULL where nobody said
    outcome      TEXT CHECK (outcome IN ('negative')), -- negative: the answer was no, which is no error
    shape        TEXT,                       -- for the drift detectors too: a hash of what kind of call it is,
    effect       TEXT,                       -- and one of what it sets to what
    UNIQUE (run_id, key)
) STRICT;

CREATE TABLE tokens (
    owner      TEXT NOT NULL,
    id         TEXT NOT NULL, -- the part of it that is no secret
    note       TEXT NOT NULL,
    hash       TEXT NOT NULL, -- SHA-256 of the secret part
    created_at TEXT NOT NULL,
    revoked_at TEXT,
    PRIMARY KEY (owner, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE tree_files (
    tree_id    INTEGER NOT NULL,
    path       TEXT NOT NULL,
    mode       TEXT NOT NULL, -- four octal digits, link, or gone: the base has it, the tree does not
    content_id INTEGER,       -- NULL for a link and for what is gone
    target     TEXT,          -- of a link
    PRIMARY KEY (tree_id, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE trees (
    id          INTEGER PRIMARY KEY,
    agent_id    INTEGER NOT NULL REFERENCES agents (id),
    sha256      TEXT CHECK (length(sha256) = 64), -- its id; NULL: the tree is gone, and others still use its list
    base        INTEGER,                          -- the tree whose list it changes; NULL: its own list is whole
    root        TEXT NOT NULL,
    git_head    TEXT NOT NULL,
    captured_at TEXT NOT NULL,
    complete    INTEGER NOT NULL CHECK (complete IN (0, 1)),
    left_out    TEXT NOT NULL CHECK (json_valid(left_out)), -- JSON: [{"path", "why"}]
    files       INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    until       TEXT                              -- it stays until then though no checkpoint may name it; NULL: one does
) STRICT;

CREATE TABLE whos (
    id  INTEGER PRIMARY KEY,
    n   INTEGER NOT NULL,
    who TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE words (
    id   INTEGER PRIMARY KEY,
    n    INTEGER NOT NULL,
    word TEXT NOT NULL UNIQUE
) STRICT;

CREATE INDEX checkpoint_trees_of_run ON checkpoint_trees (run_id, seq);

CREATE INDEX checkpoint_trees_of_tree ON checkpoint_trees (tree_id);

CREATE INDEX checkpoints_before ON checkpoints (run_id, operation) WHERE kind = 'pre_operation';

CREATE INDEX checkpoints_by_age ON checkpoints (created_at) WHERE kind = 'recovery';

CREATE INDEX checkpoints_by_id ON checkpoints (id);

CREATE INDEX checkpoints_of_run ON checkpoints (run_id, kind, seq, n);

CREATE UNIQUE INDEX contents_by_hash ON contents (agent_id, sha256) WHERE sha256 IS NOT NULL;

CREATE INDEX contents_sizes ON contents (agent_id, length(data));

CREATE INDEX deliveries_due ON deliveries (next_at) WHERE state = 'pending';

CREATE INDEX findings_by_severity ON findings (severity, run_id) WHERE dismissed_at IS NULL;

CREATE INDEX findings_of_run ON findings (run_id, at);

CREATE INDEX findings_open ON findings (run_id) WHERE closed IS NULL;

CREATE INDEX findings_secrets ON findings (run_id) WHERE rule = 'secret' AND closed IS NULL;

CREATE INDEX observed_ending ON observed (ends_at) WHERE ends_at IS NOT NULL;

CREATE INDEX operations_uncertain ON operations (run_id) WHERE status = 'uncertain';

CREATE UNIQUE INDEX prompts_asked ON prompts (run_id, key) WHERE key IS NOT NULL AND retired = 0;

CREATE INDEX prompts_of_run ON prompts (run_id);

CREATE INDEX prompts_waiting ON prompts (run_id) WHERE answered_at IS NULL;

CREATE INDEX run_labels_by_value ON run_labels (key, value, run_id);

CREATE INDEX run_words_by_word ON run_words (word, run_id);

CREATE INDEX runs_at_rest ON runs (updated_at) WHERE status <> 'running';

CREATE INDEX runs_by_status ON runs (status);

CREATE INDEX runs_by_workflow ON runs (workflow) WHERE workflow IS NOT NULL;

CREATE INDEX runs_forked ON runs (forked_from) WHERE forked_from IS NOT NULL;

CREATE INDEX runs_of_agent ON runs (agent_id);

CREATE INDEX runs_started ON runs (started_at);

CREATE INDEX runs_watched ON runs (status)
    WHERE status = 'running' AND (pid IS NOT NULL OR heartbeat_timeout_ms > 0 OR progress_timeout_ms > 0);

CREATE INDEX segments_of_run ON segments (run_id);

CREATE INDEX spans_of_run ON spans (run_id);

CREATE INDEX steps_by_time ON steps (run_id, started_at);

CREATE INDEX steps_failed ON steps (run_id, started_at) WHERE status IN ('failed', 'interrupted');

CREATE INDEX steps_of_run ON steps (run_id, after_seq);

CREATE INDEX tokens_by_id ON tokens (id);

CREATE UNIQUE INDEX trees_by_hash ON trees (agent_id, sha256) WHERE sha256 IS NOT NULL;

CREATE INDEX trees_leased ON trees (until) WHERE until IS NOT NULL;

CREATE INDEX trees_of_base ON trees (base) WHERE base IS NOT NULL;

CREATE TRIGGER act_texts_are_never_changed BEFORE UPDATE ON act_texts
BEGIN SELECT RAISE(ABORT, 'what the audit log says stays as it was said'); END;

CREATE TRIGGER acts_are_never_changed BEFORE UPDATE ON acts
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TRIGGER acts_are_never_removed BEFORE DELETE ON acts
WHEN OLD.n > coalesce((SELECT max(to_n) FROM audit_archives), 0)
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TRIGGER agents_change_owners_on_record BEFORE UPDATE OF owner ON agents
WHEN NEW.owner IS NOT (SELECT to_owner FROM owner_changes WHERE agent_id = OLD.id AND from_owner = OLD.owner
                       AND n = (SELECT max(n) FROM owner_changes WHERE agent_id = OLD.id))
BEGIN SELECT RAISE(ABORT, 'an agent keeps its owner until ckptsidecar chown gives it to another'); END;

CREATE TRIGGER agents_get_a_uid AFTER INSERT ON agents WHEN NEW.uid IS NULL
BEGIN UPDATE agents SET uid = printf('%08x-%04x-7%03x-%04x-%s', (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)) >> 16, (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)) & 0xffff, abs(random() % 4096), 0x8000 | abs(random() % 0x4000), lower(hex(randomblob(6)))) WHERE id = NEW.id; END;

CREATE TRIGGER agents_keep_their_names BEFORE UPDATE OF id, name, created_at ON agents
BEGIN SELECT RAISE(ABORT, 'an agent keeps its name'); END;

CREATE TRIGGER agents_keep_their_uid BEFORE UPDATE OF uid ON agents WHEN OLD.uid IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'an agent keeps its uid'); END;

CREATE TRIGGER agents_leave_their_number AFTER DELETE ON agents
BEGIN INSERT INTO meta (key, value) VALUES ('last_agent', OLD.id)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE CAST(excluded.value AS INTEGER) > CAST(value AS INTEGER); END;

CREATE TRIGGER agents_never_take_a_number_again BEFORE INSERT ON agents
WHEN NEW.id <= (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'last_agent')
BEGIN SELECT RAISE(ABORT, 'the number of an agent is never used again'); END;

CREATE TRIGGER audit_archives_are_never_changed BEFORE UPDATE OF to_n, from_n, hash, name, sha256, bytes, at, who ON audit_archives
BEGIN SELECT RAISE(ABORT, 'what was archived stays recorded as it was'); END;

CREATE TRIGGER audit_archives_are_never_forgotten BEFORE DELETE ON audit_archives
BEGIN SELECT RAISE(ABORT, 'what was archived stays recorded as it was'); END;

CREATE TRIGGER audit_archives_follow_one_another BEFORE INSERT ON audit_archives
WHEN NEW.from_n <> coalesce((SELECT max(to_n) FROM audit_archives), 0) + 1 OR NEW.to_n < NEW.from_n
BEGIN SELECT RAISE(ABORT, 'an archive begins where the one before ends'); END;

CREATE TRIGGER audit_head_is_never_removed BEFORE DELETE ON audit_head
BEGIN SELECT RAISE(ABORT, 'the audit log keeps its head'); END;

CREATE TRIGGER audit_head_is_never_replaced BEFORE INSERT ON audit_head
WHEN EXISTS (SELECT 1 FROM audit_head)
BEGIN SELECT RAISE(ABORT, 'the audit log keeps its head'); END;

CREATE TRIGGER audit_head_only_moves_on BEFORE UPDATE ON audit_head
WHEN NEW.id <> OLD.id OR NEW.n <= OLD.n OR NEW.hash IS NOT (SELECT lower(hex(hash)) FROM acts WHERE n = NEW.n)
BEGIN SELECT RAISE(ABORT, 'the head of the audit log moves on to a newer row and nowhere else'); END;

CREATE TRIGGER audit_links_are_never_changed BEFORE UPDATE ON audit_links
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TRIGGER audit_log_3_is_never_changed BEFORE UPDATE ON audit_log_3
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TRIGGER audit_log_3_is_never_lengthened BEFORE INSERT ON audit_log_3
BEGIN SELECT RAISE(ABORT, 'this part of the audit log is closed'); END;

CREATE TRIGGER audit_log_3_is_never_shortened BEFORE DELETE ON audit_log_3
WHEN OLD.n > coalesce((SELECT max(to_n) FROM audit_archives), 0)
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TRIGGER checkpoints_are_never_changed BEFORE UPDATE OF slot, n, id, run_id, seq, kind, parent, created_at, size,
    stored_size, sha256, content_type, metadata, step, operation, state_of, program, pieces, body ON checkpoints
WHEN NEW.n <= OLD.n OR NEW.seq <= OLD.seq OR NEW.id = OLD.id OR NEW.slot <> OLD.slot OR NEW.run_id <> OLD.run_id OR OLD.pinned
    OR OLD.kind <> 'routine' OR NEW.kind <> 'routine' OR OLD.pieces IS NOT NULL OR NEW.pieces IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a checkpoint stays as it was saved'); END;

CREATE TRIGGER checkpoints_are_never_replaced BEFORE INSERT ON checkpoints
WHEN EXISTS (SELECT 1 FROM checkpoints WHERE slot = NEW.slot)
BEGIN SELECT RAISE(ABORT, 'a checkpoint stays as it was saved'); END;

CREATE TRIGGER contents_are_never_changed BEFORE UPDATE ON contents
WHEN NEW.id IS NOT OLD.id OR NEW.agent_id IS NOT OLD.agent_id OR NEW.size IS NOT OLD.size OR NEW.fresh IS NOT OLD.fresh OR NEW.data IS NOT OLD.data
  OR NEW.sha256 IS NOT NULL OR NEW.pieces IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a content is never changed'); END;

CREATE TRIGGER contents_are_never_replaced BEFORE INSERT ON contents
WHEN EXISTS (SELECT 1 FROM contents WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'a content is never changed'); END;

CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'the journal of a run is append-only'); END;

CREATE TRIGGER findings_are_never_changed BEFORE UPDATE OF id, run_id, at, rule, severity, message, advice, evidence,
    checkpoint, since_seq ON findings
BEGIN SELECT RAISE(ABORT, 'what was found stays as it was noted; a finding is closed or dismissed'); END;

CREATE TRIGGER findings_are_never_replaced BEFORE INSERT ON findings
WHEN EXISTS (SELECT 1 FROM findings WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'what was found stays as it was noted; a finding is closed or dismissed'); END;

CREATE TRIGGER graph_writes_go_with_their_checkpoint AFTER DELETE ON graph_checkpoints
BEGIN DELETE FROM graph_writes WHERE run_id = OLD.run_id AND checkpoint = OLD.id; END;

CREATE TRIGGER idempotency_is_never_changed BEFORE UPDATE ON idempotency
BEGIN SELECT RAISE(ABORT, 'the reply to a key stays as it was given'); END;

CREATE TRIGGER ids_are_never_changed BEFORE UPDATE ON ids
BEGIN SELECT RAISE(ABORT, 'an id stays with the save that it was used for'); END;

CREATE TRIGGER labels_change_with_their_run AFTER UPDATE OF labels ON runs WHEN NEW.labels <> OLD.labels
BEGIN DELETE FROM run_labels WHERE run_id = NEW.id;
INSERT INTO run_labels (run_id, key, value) SELECT NEW.id, key, value
FROM json_each(NEW.labels) WHERE type = 'text'; END;

CREATE TRIGGER labels_come_with_their_run AFTER INSERT ON runs WHEN NEW.labels <> '{}'
BEGIN INSERT INTO run_labels (run_id, key, value) SELECT NEW.id, key, value
FROM json_each(NEW.labels) WHERE type = 'text'; END;

CREATE TRIGGER operations_are_never_changed BEFORE UPDATE OF id, run_id, key, attempt, name, checkpoint, started_at ON operations
BEGIN SELECT RAISE(ABORT, 'an operation stays as it was begun'); END;

CREATE TRIGGER owner_changes_are_never_removed BEFORE DELETE ON owner_changes
BEGIN SELECT RAISE(ABORT, 'who had an agent stays recorded'); END;

CREATE TRIGGER owner_changes_are_never_replaced BEFORE INSERT ON owner_changes
WHEN NEW.n <= (SELECT max(n) FROM owner_changes WHERE agent_id = NEW.agent_id)
BEGIN SELECT RAISE(ABORT, 'who had an agent stays recorded'); END;

CREATE TRIGGER owner_changes_stay BEFORE UPDATE ON owner_changes
BEGIN SELECT RAISE(ABORT, 'who had an agent stays recorded'); END;

CREATE TRIGGER places_are_never_changed BEFORE UPDATE ON places
BEGIN SELECT RAISE(ABORT, 'the names in the audit log stay'); END;

CREATE TRIGGER places_are_never_removed BEFORE DELETE ON places
BEGIN SELECT RAISE(ABORT, 'the names in the audit log stay'); END;

CREATE TRIGGER prompts_are_never_changed BEFORE UPDATE OF id, run_id, at, question, reason, checkpoint, memory_diff, kind, key, choices, schema, expires_at, asked_seq ON prompts
BEGIN SELECT RAISE(ABORT, 'a question stays as it was asked'); END;

CREATE TRIGGER runs_get_a_uid AFTER INSERT ON runs WHEN NEW.uid IS NULL
BEGIN UPDATE runs SET uid = printf('%08x-%04x-7%03x-%04x-%s', (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)) >> 16, (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)) & 0xffff, abs(random() % 4096), 0x8000 | abs(random() % 0x4000), lower(hex(randomblob(6)))) WHERE id = NEW.id; END;

CREATE TRIGGER runs_keep_their_names BEFORE UPDATE OF id, agent_id, name ON runs
BEGIN SELECT RAISE(ABORT, 'a run keeps its agent and its name'); END;

CREATE TRIGGER runs_keep_their_uid BEFORE UPDATE OF uid ON runs WHEN OLD.uid IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a run keeps its uid'); END;

CREATE TRIGGER runs_leave_their_number AFTER DELETE ON runs
BEGIN INSERT INTO meta (key, value) VALUES ('last_run', OLD.id)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE CAST(excluded.value AS INTEGER) > CAST(value AS INTEGER); END;

CREATE TRIGGER runs_never_take_a_number_again BEFORE INSERT ON runs
WHEN NEW.id <= (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'last_run')
BEGIN SELECT RAISE(ABORT, 'the number of a run is never used again'); END;

CREATE TRIGGER runs_take_labels_and_words_with_them AFTER DELETE ON runs
BEGIN DELETE FROM run_labels WHERE run_id = OLD.id; DELETE FROM run_words WHERE run_id = OLD.id; END;

CREATE TRIGGER runs_take_segments_with_them AFTER DELETE ON runs
BEGIN DELETE FROM run_segments WHERE run_id = OLD.id; END;

CREATE TRIGGER segments_are_never_changed BEFORE UPDATE ON segments
BEGIN SELECT RAISE(ABORT, 'the pieces of states stay as they were saved'); END;

CREATE TRIGGER segments_are_never_replaced BEFORE INSERT ON segments
WHEN NEW.id > 0 AND EXISTS (SELECT 1 FROM segments WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'the pieces of states stay as they were saved'); END;

CREATE TRIGGER segments_begin AFTER UPDATE OF segment_at ON runs WHEN OLD.segment_at IS NULL AND NEW.segment_at IS NOT NULL
BEGIN INSERT INTO run_segments (run_id, n, attempt, pid, began_at)
SELECT NEW.id, 1 + coalesce(max(n), 0), NEW.attempt, NEW.pid, NEW.segment_at FROM run_segments WHERE run_id = NEW.id;
DELETE FROM run_segments WHERE run_id = NEW.id AND n <= (SELECT max(n) - 1000 FROM run_segments WHERE run_id = NEW.id); END;

CREATE TRIGGER segments_change_owners AFTER UPDATE OF segment_at ON runs
WHEN OLD.segment_at IS NOT NULL AND NEW.segment_at IS NOT NULL AND (NEW.segment_at <> OLD.segment_at OR NEW.pid IS NOT OLD.pid OR NEW.attempt <> OLD.attempt)
BEGIN UPDATE run_segments SET attempt = NEW.attempt, pid = NEW.pid, began_at = NEW.segment_at
WHERE run_id = NEW.id AND n = (SELECT max(n) FROM run_segments WHERE run_id = NEW.id) AND ended_at IS NULL; END;

CREATE TRIGGER segments_come_with_their_run AFTER INSERT ON runs WHEN NEW.segment_at IS NOT NULL
BEGIN INSERT INTO run_segments (run_id, n, attempt, pid, began_at) VALUES (NEW.id, 1, NEW.attempt, NEW.pid, NEW.segment_at); END;

CREATE TRIGGER segments_end AFTER UPDATE OF segment_at ON runs WHEN OLD.segment_at IS NOT NULL AND NEW.segment_at IS NULL
BEGIN UPDATE run_segments SET how = NEW.status,
    ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', OLD.segment_at, printf('+%.3f seconds', max(0, NEW.accumulated_ms - OLD.accumulated_ms) / 1000.0))
WHERE run_id = NEW.id AND n = (SELECT max(n) FROM run_segments WHERE run_id = NEW.id) AND ended_at IS NULL; END;

CREATE TRIGGER the_database_gets_one_id BEFORE INSERT ON meta
WHEN NEW.key IN ('database_id', 'created_at', 'chain_key') AND EXISTS (SELECT 1 FROM meta WHERE key = NEW.key)
BEGIN SELECT RAISE(ABORT, 'the database keeps its id'); END;

CREATE TRIGGER the_database_keeps_its_id BEFORE UPDATE ON meta WHEN OLD.key IN ('database_id', 'created_at', 'chain_key')
BEGIN SELECT RAISE(ABORT, 'the database keeps its id'); END;

CREATE TRIGGER the_database_never_loses_its_id BEFORE DELETE ON meta WHEN OLD.key IN ('database_id', 'created_at', 'chain_key')
BEGIN SELECT RAISE(ABORT, 'the database keeps its id'); END;

CREATE TRIGGER tree_files_are_never_changed BEFORE UPDATE ON tree_files
BEGIN SELECT RAISE(ABORT, 'a tree is never changed'); END;

CREATE TRIGGER trees_are_never_changed BEFORE UPDATE OF id, agent_id, base, root, git_head, captured_at, complete, left_out, files, bytes ON trees
BEGIN SELECT RAISE(ABORT, 'a tree is never changed'); END;

CREATE TRIGGER trees_keep_their_id BEFORE UPDATE OF sha256 ON trees WHEN NEW.sha256 IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a tree is never changed'); END;

CREATE TRIGGER whos_are_never_changed BEFORE UPDATE ON whos
BEGIN SELECT RAISE(ABORT, 'the names in the audit log stay'); END;

CREATE TRIGGER whos_are_never_removed BEFORE DELETE ON whos
BEGIN SELECT RAISE(ABORT, 'the names in the audit log stay'); END;

CREATE TRIGGER words_are_never_changed BEFORE UPDATE ON words
BEGIN SELECT RAISE(ABORT, 'the names in the audit log stay'); END;

CREATE TRIGGER words_are_never_removed BEFORE DELETE ON words
BEGIN SELECT RAISE(ABORT, 'the names in the audit log stay'); END;

CREATE TRIGGER words_change_with_their_goal AFTER UPDATE OF goal ON runs WHEN NEW.goal IS NOT OLD.goal
BEGIN DELETE FROM run_words WHERE run_id = NEW.id;
INSERT OR IGNORE INTO run_words (run_id, word)
SELECT NEW.id, substr(trim(value, ';!?()[]{}<>|''`#*+=&%$@~^'), 1, 64) AS w
FROM json_each('[' || replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(
    json_quote(lower(substr(NEW.goal, 1, 2000))), '\\', ' '), '\"', ' '), '\n', ' '), '\r', ' '), '\t', ' '), '/', ' '), '-', ' '), '_', ' '), '.', ' '), ',', ' '), ':', ' '), ' ', '","') || ']') WHERE w <> ''; END;

CREATE TRIGGER words_come_with_their_goal AFTER INSERT ON runs WHEN NEW.goal IS NOT NULL
BEGIN INSERT OR IGNORE INTO run_words (run_id, word)
SELECT NEW.id, substr(trim(value, ';!?()[]{}<>|''`#*+=&%$@~^'), 1, 64) AS w
FROM json_each('[' || replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(
    json_quote(lower(substr(NEW.goal, 1, 2000))), '\\', ' '), '\"', ' '), '\n', ' '), '\r', ' '), '\t', ' '), '/', ' '), '-', ' '), '_', ' '), '.', ' '), ',', ' '), ':', ' '), ' ', '","') || ']') WHERE w <> ''; END;
