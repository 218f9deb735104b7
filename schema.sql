-- The database of ckptsidecar, schema version 1.
--
-- For auditors: read the views whose names begin with audit_. They are a
-- contract and work in SQLite 3.40 and newer; the tables below them may change
-- between versions. docs/AUDIT.md shows how to ask.
--
-- Times are text: RFC 3339, UTC, milliseconds. They sort as text. JSON is text.
-- Truth values are 0 and 1. Nothing here needs a function that the sqlite3
-- command does not have.

-- ---------------------------------------------------------------- tables ---

-- What is true of the whole database: its id, when retention last ran, the
-- secret that is in each hash of the audit log (chain_key), under damaged:ID
-- which checkpoints did not read back intact, and why, the largest numbers of
-- agents and runs that are gone (last_agent, last_run), and the fingerprint of the
-- schema that made the file (schema).
CREATE TABLE IF NOT EXISTS meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- An agent is a name owned by an identity of the operating system.
CREATE TABLE IF NOT EXISTS agents (
    id         INTEGER PRIMARY KEY,
    owner      TEXT NOT NULL,              -- uid:1000, or a Windows SID
    name       TEXT NOT NULL,
    created_at TEXT NOT NULL,
    policy     TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(policy)), -- what counts: policy_own over what policies has for its owner and for all; what is missing has the default
    policy_at  TEXT NOT NULL,              -- when what counts last changed
    recovery_keep_s INTEGER NOT NULL DEFAULT 604800, -- the policy's recovery_keep in seconds, for audit_violations
    policy_own TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(policy_own)), -- what was set for this agent itself
    pre_operation_keep_s INTEGER NOT NULL DEFAULT 2592000, -- the policy's pre_operation_keep in seconds; 0 keeps them
    uid        TEXT,                       -- UUID of version 7: no other agent of any database has it
    UNIQUE (owner, name)
) STRICT;

-- Agents that were given to another owner. The rows of the audit log up to row n name
-- the owner before, and those after it the new one. Row n records that the one gave the
-- agent away, and row n + 1 that the other received it. These rows outlive the agent.
CREATE TABLE IF NOT EXISTS owner_changes (
    agent_id   INTEGER NOT NULL,
    n          INTEGER NOT NULL, -- the row of the audit log
    uid        TEXT NOT NULL,    -- the agent's; both rows have it as their subject
    agent      TEXT NOT NULL,
    from_owner TEXT NOT NULL,
    to_owner   TEXT NOT NULL,
    PRIMARY KEY (agent_id, n)
) STRICT, WITHOUT ROWID;

-- Agents whose erasure has begun and is not finished: rows may be there, or traces of rows in
-- free pages and in the write-ahead log. The daemon finishes the erasure at its start and once a minute.
CREATE TABLE IF NOT EXISTS scrub_owed (
    agent_id INTEGER PRIMARY KEY,
    owner    TEXT NOT NULL,
    agent    TEXT NOT NULL,
    began_at TEXT NOT NULL,
    erased   TEXT NOT NULL -- JSON: what is erased, as the answer says
) STRICT;

-- Policies for more than one agent: an owner's for all of their agents, and under
-- the owner * what [policy] of the daemon's settings says for everybody's. What
-- one of them leaves out is not set.
CREATE TABLE IF NOT EXISTS policies (
    owner  TEXT NOT NULL PRIMARY KEY,
    policy TEXT NOT NULL CHECK (json_valid(policy)),
    set_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A run is one life of a name: one execution of an agent. The run 'main' exists by itself.
-- When a name is begun anew, the life that has ended becomes main~1, the one before main~2;
-- its number in life stays. The counters are kept by the writer in the same transaction as what they count.
CREATE TABLE IF NOT EXISTS runs (
    id            INTEGER PRIMARY KEY,
    agent_id      INTEGER NOT NULL REFERENCES agents (id),
    name          TEXT NOT NULL,              -- what it is called now: main, or main~2 for the second life before
    life          INTEGER NOT NULL DEFAULT 1, -- 1, 2, … under its name; no later life of an agent's name gets the same
    base          TEXT GENERATED ALWAYS AS (substr(name, 1, instr(name || '~', '~') - 1)) VIRTUAL, -- the name of all its lives: main
    ago           INTEGER GENERATED ALWAYS AS (CAST(substr(name, instr(name || '~', '~') + 1) AS INTEGER)) VIRTUAL, -- 0 for the present life
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
    heartbeat_at  TEXT,                       -- the last sign of life; a heartbeat may be on disk 30 s late
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
    command       TEXT CHECK (command IS NULL OR json_valid(command)), -- how exec began its agent: {"argv": its words, "folder": where}; NULL: nobody said
    waiting       TEXT CHECK (waiting IS NULL OR json_valid(waiting)), -- the exec that goes on with it when a person has answered: {"pid", "start", "boot"}
    labels        TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(labels)),
    result        TEXT,
    error         TEXT,
    last_event    INTEGER NOT NULL DEFAULT 0,
    source        TEXT,                       -- otlp: it is observed through OpenTelemetry; NULL: its agent speaks for it
    partial       INTEGER NOT NULL DEFAULT 0 CHECK (partial IN (0, 1)), -- of an observed one: not all of it was sent
    uid           TEXT,                       -- UUID of version 7: no other run of any database has it
    UNIQUE (agent_id, name)
) STRICT;
CREATE INDEX IF NOT EXISTS runs_forked ON runs (forked_from) WHERE forked_from IS NOT NULL;
-- The monitor asks every second for the runs that it watches; a save does not touch this.
CREATE INDEX IF NOT EXISTS runs_watched ON runs (status)
    WHERE status = 'running' AND (pid IS NOT NULL OR heartbeat_timeout_ms > 0 OR progress_timeout_ms > 0);

-- For those who look for runs. A save touches none of these: it makes a run
-- running, and those are not in runs_at_rest.
CREATE INDEX IF NOT EXISTS runs_of_agent ON runs (agent_id);
CREATE INDEX IF NOT EXISTS runs_started ON runs (started_at);
CREATE INDEX IF NOT EXISTS runs_by_status ON runs (status);
CREATE INDEX IF NOT EXISTS runs_by_workflow ON runs (workflow) WHERE workflow IS NOT NULL;
CREATE INDEX IF NOT EXISTS runs_at_rest ON runs (updated_at) WHERE status <> 'running';

-- By what runs are found: labels as KEY=VALUE, and the words of goals in lower case.
CREATE TABLE IF NOT EXISTS run_terms (
    term     TEXT NOT NULL,
    is_label INTEGER NOT NULL CHECK (is_label IN (0, 1)),
    run_id   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    PRIMARY KEY (term, is_label, run_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS run_terms_of_run ON run_terms (run_id);

-- Who ran a run, and when: between two segments nobody did. Triggers keep them as
-- runs.segment_at is.
CREATE TABLE IF NOT EXISTS run_segments (
    run_id   INTEGER NOT NULL,
    n        INTEGER NOT NULL, -- 1, 2, … in its run; the newest 1,000 are kept
    attempt  INTEGER NOT NULL,
    pid      INTEGER,          -- of the owner
    began_at TEXT NOT NULL,
    ended_at TEXT,             -- the last sign of life in it; NULL while it lasts
    how      TEXT,             -- the status that the run got by its end
    PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS segments_come_with_their_run AFTER INSERT ON runs WHEN NEW.segment_at IS NOT NULL
BEGIN INSERT INTO run_segments (run_id, n, attempt, pid, began_at) VALUES (NEW.id, 1, NEW.attempt, NEW.pid, NEW.segment_at); END;
CREATE TRIGGER IF NOT EXISTS segments_begin AFTER UPDATE OF segment_at ON runs WHEN OLD.segment_at IS NULL AND NEW.segment_at IS NOT NULL
BEGIN INSERT INTO run_segments (run_id, n, attempt, pid, began_at)
SELECT NEW.id, 1 + coalesce(max(n), 0), NEW.attempt, NEW.pid, NEW.segment_at FROM run_segments WHERE run_id = NEW.id;
DELETE FROM run_segments WHERE run_id = NEW.id AND n <= (SELECT max(n) - 1000 FROM run_segments WHERE run_id = NEW.id); END;
CREATE TRIGGER IF NOT EXISTS segments_change_owners AFTER UPDATE OF segment_at ON runs
WHEN OLD.segment_at IS NOT NULL AND NEW.segment_at IS NOT NULL AND (NEW.segment_at <> OLD.segment_at OR NEW.pid IS NOT OLD.pid OR NEW.attempt <> OLD.attempt)
BEGIN UPDATE run_segments SET attempt = NEW.attempt, pid = NEW.pid, began_at = NEW.segment_at
WHERE run_id = NEW.id AND n = (SELECT max(n) FROM run_segments WHERE run_id = NEW.id) AND ended_at IS NULL; END;
CREATE TRIGGER IF NOT EXISTS segments_end AFTER UPDATE OF segment_at ON runs WHEN OLD.segment_at IS NOT NULL AND NEW.segment_at IS NULL
BEGIN UPDATE run_segments SET how = NEW.status,
    ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', OLD.segment_at, printf('+%.3f seconds', max(0, NEW.accumulated_ms - OLD.accumulated_ms) / 1000.0))
WHERE run_id = NEW.id AND n = (SELECT max(n) FROM run_segments WHERE run_id = NEW.id) AND ended_at IS NULL; END;
CREATE TRIGGER IF NOT EXISTS runs_take_segments_with_them AFTER DELETE ON runs
BEGIN DELETE FROM run_segments WHERE run_id = OLD.id; END;

-- A checkpoint: what is known of a saved state, and the state. A small state
-- stands in body as it is. A larger one is a list of pieces: a JSON array of
-- [segment, offset, length], to be put one after the other. Checkpoints share
-- segments; none depends on another. Those of a run that share a segment follow
-- one another by seq, but for such as stand in their bodies. A small routine
-- checkpoint takes the row of the one that goes because of it.
CREATE TABLE IF NOT EXISTS "checkpoints" (
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

-- The newest of a run, and of a kind in a run; retention asks the same.
CREATE INDEX IF NOT EXISTS checkpoints_of_run ON checkpoints (run_id, kind, seq, n);
CREATE INDEX IF NOT EXISTS checkpoints_by_id ON checkpoints (id);
-- Recovery checkpoints go by age.
CREATE INDEX IF NOT EXISTS checkpoints_by_age ON checkpoints (created_at) WHERE kind = 'recovery';
-- Those before operations go when these have succeeded.
CREATE INDEX IF NOT EXISTS checkpoints_before ON checkpoints (run_id, operation) WHERE kind = 'pre_operation';

-- Bytes that states are made of. data is plain where its length is size, and
-- zlib otherwise: sqlar_uncompress(data, size) gives the bytes either way.
CREATE TABLE IF NOT EXISTS segments (
    id     INTEGER PRIMARY KEY, -- the number of the row of the audit log that records the save: never used again
    run_id INTEGER NOT NULL REFERENCES runs (id),
    size   INTEGER NOT NULL,
    data   BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS segments_of_run ON segments (run_id);

-- Contents of files, by agent: none is shared with another agent. A content is a
-- list of pieces, as a state is: a JSON array of [content, offset, length], in which
-- content 0 is the row itself. Without a list it is what data is. data is plain where
-- its length is fresh, and zlib otherwise: sqlar_uncompress(data, fresh) gives the bytes
-- either way.
CREATE TABLE IF NOT EXISTS contents (
    id       INTEGER PRIMARY KEY,
    agent_id INTEGER NOT NULL REFERENCES agents (id),
    sha256   BLOB CHECK (length(sha256) = 32), -- NULL: the content is gone, and others still use bytes of its row
    size     INTEGER NOT NULL,                 -- bytes of the content
    pieces   TEXT,
    fresh    INTEGER NOT NULL,                 -- bytes of data once they are inflated
    data     BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS contents_by_hash ON contents (agent_id, sha256) WHERE sha256 IS NOT NULL;
-- What the contents of an agent take is asked for at each look at it, and before more is stored.
CREATE INDEX IF NOT EXISTS contents_sizes ON contents (agent_id, length(data));
-- Which contents use bytes of the rows of others.
CREATE TABLE IF NOT EXISTS content_uses (
    used    INTEGER NOT NULL, -- the content whose row has the bytes
    used_by INTEGER NOT NULL,
    PRIMARY KEY (used, used_by)
) STRICT, WITHOUT ROWID;
-- Contents that stay until a time though no tree may name them.
CREATE TABLE IF NOT EXISTS content_leases (
    content_id INTEGER PRIMARY KEY,
    until      TEXT NOT NULL
) STRICT;
-- What in a content looks like a secret, until a finding has said so.
CREATE TABLE IF NOT EXISTS content_secrets (
    content_id INTEGER PRIMARY KEY,
    kind       TEXT NOT NULL
) STRICT;

-- A tree is the files below a root at one moment. It has a whole list of files, or
-- that of its base with what differs.
CREATE TABLE IF NOT EXISTS trees (
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
CREATE UNIQUE INDEX IF NOT EXISTS trees_by_hash ON trees (agent_id, sha256) WHERE sha256 IS NOT NULL;
CREATE INDEX IF NOT EXISTS trees_of_base ON trees (base) WHERE base IS NOT NULL;
CREATE INDEX IF NOT EXISTS trees_leased ON trees (until) WHERE until IS NOT NULL;
-- The files of trees.
CREATE TABLE IF NOT EXISTS tree_files (
    tree_id    INTEGER NOT NULL,
    path       TEXT NOT NULL,
    mode       TEXT NOT NULL, -- four octal digits, link, or gone: the base has it, the tree does not
    content_id INTEGER,       -- NULL for a link and for what is gone
    target     TEXT,          -- of a link
    PRIMARY KEY (tree_id, path)
) STRICT, WITHOUT ROWID;
-- Which trees a checkpoint names. Its row may be used again by another checkpoint, so
-- it is known by the row of the audit log that records its save.
CREATE TABLE IF NOT EXISTS checkpoint_trees (
    n       INTEGER NOT NULL,
    place   INTEGER NOT NULL, -- 1, 2, …
    run_id  INTEGER NOT NULL REFERENCES runs (id),
    seq     INTEGER NOT NULL,
    tree_id INTEGER,          -- NULL: it was let go of
    gone    TEXT,             -- why
    PRIMARY KEY (n, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS checkpoint_trees_of_run ON checkpoint_trees (run_id, seq);
CREATE INDEX IF NOT EXISTS checkpoint_trees_of_tree ON checkpoint_trees (tree_id);

-- A step is one unit of work: a tool call, a model call, a statement.
CREATE TABLE IF NOT EXISTS steps (
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
    calls        INTEGER NOT NULL DEFAULT 0, -- later calls that were answered with this result,
    calls_in     INTEGER,                    -- in this stretch of the run,
    called_at    TEXT,                       -- the last one then
    UNIQUE (run_id, key)
) STRICT;
-- A resume plan asks for the steps since a checkpoint.
CREATE INDEX IF NOT EXISTS steps_of_run ON steps (run_id, after_seq);
-- A run's flight recorder counts steps by when they began, and those that failed.
CREATE INDEX IF NOT EXISTS steps_by_time ON steps (run_id, started_at);
CREATE INDEX IF NOT EXISTS steps_failed ON steps (run_id, started_at) WHERE status IN ('failed', 'interrupted');

-- An attempt of an operation, which must not happen twice. It began with a
-- pre_operation checkpoint, which stays until an attempt of the same key has
-- succeeded and none is uncertain. failed: known not to have happened. uncertain:
-- nobody knows; only a resolution, which is a row of the audit log, ends it.
CREATE TABLE IF NOT EXISTS operations (
    id         INTEGER PRIMARY KEY,
    run_id     INTEGER NOT NULL REFERENCES runs (id),
    key        TEXT NOT NULL,
    attempt    INTEGER NOT NULL DEFAULT 1,
    name       TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('open', 'succeeded', 'failed', 'uncertain', 'superseded')),
    args       TEXT,
    idempotent INTEGER NOT NULL DEFAULT 0 CHECK (idempotent IN (0, 1)), -- repeating it with the same key is harmless
    self_check INTEGER NOT NULL DEFAULT 0 CHECK (self_check IN (0, 1)), -- its code can find out whether it took effect
    result_schema TEXT,   -- the JSON Schema of the result that a person gives
    checkpoint TEXT,
    started_at TEXT NOT NULL,
    ended_at   TEXT,      -- when it succeeded, failed or became uncertain
    result     TEXT,
    error      TEXT,      -- why it was not done, or what left it uncertain
    resolution TEXT CHECK (resolution IN ('it_did', 'it_did_not', 'repeat')), -- of one that was uncertain
    resolved_at TEXT,
    resolved_by TEXT,     -- an identity; check, agent or idempotent: no person
    left_uncertain INTEGER NOT NULL DEFAULT 0 CHECK (left_uncertain IN (0, 1)), -- its run was ended or begun anew over it
    spooled_at TEXT,      -- when it began without the daemon, by the clock of its client; NULL for one that began with it
    CHECK ((resolution IS NULL) = (resolved_at IS NULL) AND (resolved_by IS NULL) = (resolved_at IS NULL)),
    UNIQUE (run_id, key, attempt)
) STRICT;
CREATE INDEX IF NOT EXISTS operations_uncertain ON operations (run_id) WHERE status = 'uncertain';

-- The journal of a run: seq is 1, 2, … without gaps.
CREATE TABLE IF NOT EXISTS events (
    run_id  INTEGER NOT NULL REFERENCES runs (id),
    seq     INTEGER NOT NULL,
    at      TEXT NOT NULL,
    type    TEXT NOT NULL,
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    batch   INTEGER, -- of event_batches; NULL for one that was imported, or is older
    PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID;
-- The order of all events of an owner: one row for what was appended at once. n
-- only grows; it is the row of the audit log that came next.
CREATE TABLE IF NOT EXISTS event_batches (
    owner  TEXT NOT NULL,
    n      INTEGER NOT NULL,
    run_id INTEGER NOT NULL,
    first  INTEGER NOT NULL, -- its events, by seq
    last   INTEGER NOT NULL,
    PRIMARY KEY (owner, n)
) STRICT, WITHOUT ROWID;

-- What a drift detector, an agent itself, or the search for secrets saw. While
-- one is critical and not dismissed, all checkpoints after since_seq, up to
-- until_seq, are suspect. So are those of a warning about the state, once it is
-- closed. If its rule fires again soon after it has recovered,
-- the same finding is opened again, and earlier tells when it was open before.
CREATE TABLE IF NOT EXISTS findings (
    id           TEXT NOT NULL PRIMARY KEY,
    run_id       INTEGER NOT NULL REFERENCES runs (id),
    at           TEXT NOT NULL,
    rule         TEXT NOT NULL,
    severity     TEXT NOT NULL CHECK (severity IN ('info', 'warn', 'critical')),
    message      TEXT NOT NULL,
    advice       TEXT,    -- for the model: what to do now
    evidence     TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(evidence)),
    checkpoint   TEXT,    -- the one in which it was seen, or the recovery checkpoint that was made because of it
    about        TEXT NOT NULL DEFAULT 'run' CHECK (about IN ('run', 'work', 'state')), -- use or time; what was done; what was saved
    posted       INTEGER NOT NULL DEFAULT 0 CHECK (posted IN (0, 1)), -- the agent reported it itself
    since_seq    INTEGER, -- the run's newest checkpoint before the evidence began; NULL if it is about the run
    until_seq    INTEGER, -- the run's newest checkpoint when it was closed
    closed       TEXT CHECK (closed IN ('dismissed', 'recovered', 'resumed', 'restored', 'begun_anew')), -- by what; NULL while it is open
    closed_at    TEXT,
    closed_step  INTEGER, -- how many steps had ended when it recovered
    earlier      TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(earlier)), -- since_seq, until_seq and checkpoint of each earlier time
    dismissed_at TEXT,    -- an operator said that it was none, also after it was closed otherwise
    dismissed_by TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS findings_of_run ON findings (run_id, at);
-- Runs are found by the worst that is known of them.
CREATE INDEX IF NOT EXISTS findings_by_severity ON findings (severity, run_id) WHERE dismissed_at IS NULL;
CREATE INDEX IF NOT EXISTS findings_open ON findings (run_id) WHERE closed IS NULL AND rule <> 'secret';
CREATE INDEX IF NOT EXISTS findings_shared ON findings (run_id) WHERE closed IS NULL AND rule = 'shared_keys';
CREATE INDEX IF NOT EXISTS findings_secrets ON findings (run_id) WHERE rule = 'secret' AND closed IS NULL;

-- A question to a person.
CREATE TABLE IF NOT EXISTS prompts (
    id          TEXT NOT NULL PRIMARY KEY,
    run_id      INTEGER NOT NULL REFERENCES runs (id),
    at          TEXT NOT NULL,
    question    TEXT NOT NULL,
    reason      TEXT NOT NULL,
    checkpoint  TEXT,
    memory_diff TEXT,
    choice      TEXT CHECK (choice IN ('resume', 'reinitialize', 'abandon', 'it_did', 'it_did_not', 'repeat')), -- of a decision, or about an operation
    answered_at TEXT,
    answered_by TEXT, -- daemon: it was withdrawn
    kind        TEXT NOT NULL DEFAULT 'decision' CHECK (kind IN ('decision', 'question', 'operation')), -- decision: how to go on with a run; question: one of the run's own; operation: what became of an attempt
    operation   TEXT,    -- the key of the operation that it is about; question and reason are made when they are shown
    attempt     INTEGER, -- of that operation
    key         TEXT,    -- of a question: asked again under it, it is the same one
    choices     TEXT,    -- a JSON array: the only answers; NULL for any
    schema      TEXT,    -- the JSON Schema of data
    expires_at  TEXT,    -- when it can be answered no more
    asked_seq   INTEGER, -- the run's newest checkpoint when it was asked,
    answered_seq INTEGER, -- and when it was answered
    answer      TEXT,    -- the choice
    data        TEXT     -- what came with it
) STRICT;
CREATE INDEX IF NOT EXISTS prompts_of_run ON prompts (run_id);
CREATE INDEX IF NOT EXISTS prompts_waiting ON prompts (run_id) WHERE answered_at IS NULL;
CREATE UNIQUE INDEX IF NOT EXISTS prompts_of_operation ON prompts (run_id, operation, attempt) WHERE kind = 'operation';
CREATE UNIQUE INDEX IF NOT EXISTS prompts_asked ON prompts (run_id, key) WHERE key IS NOT NULL;

-- What hooks of the settings are told of. A notice is written in the transaction
-- of what it tells of, and forgotten some time after it was delivered or given up.
CREATE TABLE IF NOT EXISTS notices (
    n     INTEGER PRIMARY KEY,
    id    TEXT NOT NULL UNIQUE, -- the receiver sees it: the same at each attempt
    at    TEXT NOT NULL,
    type  TEXT NOT NULL,
    owner TEXT,
    agent TEXT,
    run   TEXT,
    life  INTEGER NOT NULL,     -- of the run; 0 where there is none
    body  TEXT NOT NULL CHECK (json_valid(body))
) STRICT;
CREATE TABLE IF NOT EXISTS deliveries (
    notice   INTEGER NOT NULL REFERENCES notices (n) ON DELETE CASCADE,
    hook     TEXT NOT NULL, -- its name in the settings
    state    TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'dead')),
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at  TEXT NOT NULL, -- of a pending one
    done_at  TEXT,
    error    TEXT,          -- of the last attempt, without anything secret
    PRIMARY KEY (notice, hook)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS deliveries_due ON deliveries (next_at) WHERE state = 'pending';

-- What LangGraph's savers keep beside: a run is one thread and namespace, a
-- checkpoint is one of LangGraph's under the id that LangGraph gave it. Its values
-- are in its state. See docs/LANGGRAPH.md.
CREATE TABLE IF NOT EXISTS graph_threads (
    run_id   INTEGER PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    agent_id INTEGER NOT NULL REFERENCES agents (id),
    thread   TEXT NOT NULL,
    ns       TEXT NOT NULL, -- '' is the root graph
    UNIQUE (agent_id, thread, ns)
) STRICT;
CREATE TABLE IF NOT EXISTS "graph_checkpoints" (
    slot     INTEGER PRIMARY KEY REFERENCES checkpoints (slot) ON DELETE CASCADE, -- it goes with its checkpoint, whoever removes that
    run_id   INTEGER NOT NULL REFERENCES graph_threads (run_id) ON DELETE CASCADE,
    id       TEXT NOT NULL, -- LangGraph's; they sort by time
    parent   TEXT,          -- LangGraph's id of the checkpoint that it came from; it may be gone
    channels TEXT NOT NULL, -- a JSON array: those that have a value in it
    UNIQUE (run_id, id)
) STRICT;
-- What tasks have written that is not in a checkpoint yet. It may come before
-- the checkpoint that it is for, and goes with it. data is plain where its
-- length is size, and zlib otherwise.
CREATE TABLE IF NOT EXISTS graph_writes (
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
CREATE TRIGGER IF NOT EXISTS graph_writes_go_with_their_checkpoint AFTER DELETE ON graph_checkpoints
BEGIN DELETE FROM graph_writes WHERE run_id = OLD.run_id AND checkpoint = OLD.id; END;

-- Spans of OpenTelemetry that were taken over, so that none is taken twice. What
-- is known of one stands in said until the root of its trace has come and its run
-- is known; then a tool's is a step, and a model's is counted. See docs/OTLP.md.
CREATE TABLE IF NOT EXISTS spans (
    owner  TEXT NOT NULL,
    trace  TEXT NOT NULL, -- 32 hexadecimal digits
    span   TEXT NOT NULL, -- 16 of them
    run_id INTEGER REFERENCES runs (id) ON DELETE CASCADE, -- NULL while it waits for the root of its trace
    call   TEXT,          -- of a tool: the model's id of the call
    step   TEXT,          -- the key of the step that it is in; NULL where it is in none
    said   TEXT,          -- JSON: what was taken over, while it waits
    PRIMARY KEY (owner, trace, span)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS spans_of_run ON spans (run_id, call);

-- Runs that are observed through OpenTelemetry. Nobody says when one is over.
CREATE TABLE IF NOT EXISTS observed (
    run_id  INTEGER PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    ends_at TEXT,             -- when it ends if nothing more comes; NULL once it has
    told_ns INTEGER NOT NULL, -- the end of the newest span that the drift detectors have seen, in nanoseconds
    last_at TEXT NOT NULL,    -- the end of its newest span
    failed  INTEGER NOT NULL CHECK (failed IN (0, 1)) -- its newest root failed
) STRICT;
CREATE INDEX IF NOT EXISTS observed_ending ON observed (ends_at) WHERE ends_at IS NOT NULL;

-- Tokens that name an owner where no kernel does: at the loopback port that takes
-- OpenTelemetry's spans. They are good for nothing else.
CREATE TABLE IF NOT EXISTS tokens (
    owner      TEXT NOT NULL,
    id         TEXT NOT NULL, -- the part of it that is no secret
    note       TEXT NOT NULL,
    hash       TEXT NOT NULL, -- SHA-256 of the secret part
    created_at TEXT NOT NULL,
    revoked_at TEXT,
    PRIMARY KEY (owner, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tokens_by_id ON tokens (id);

-- Idempotency keys and the first reply to each, without what the request or a row
-- has. agent_id is 0 where no agent was named. A client's own ids are its keys and
-- grow with time, so new rows stand together at the end.
CREATE TABLE IF NOT EXISTS idempotency (
    key         ANY NOT NULL,     -- 16 bytes of a UUID, or another text
    agent_id    INTEGER NOT NULL,
    fingerprint BLOB NOT NULL,    -- 16 bytes, of a SHA-256 of what was asked
    reply       TEXT NOT NULL,
    created_at  INTEGER NOT NULL, -- milliseconds since 1970, UTC
    PRIMARY KEY (key, agent_id)
) STRICT, WITHOUT ROWID;

-- The audit log. Each row of acts says who did what, when, and how it went; the
-- views audit_log, audit_removals and audit_chain give it as text. Rows are only
-- ever added. A save's row also records which checkpoints went because of it, and
-- is what a repeated save is answered from. The newest row is the head of the log.
CREATE TABLE IF NOT EXISTS acts (
    n       INTEGER PRIMARY KEY, -- 1, 2, … without gaps
    at      INTEGER NOT NULL,    -- milliseconds since 1970, UTC
    who     TEXT,                -- NULL: the owner of its place
    pid     INTEGER NOT NULL,
    action  TEXT NOT NULL,
    place   INTEGER REFERENCES places (id),
    outcome TEXT,                -- an error code; NULL is done
    retries INTEGER,             -- NULL is 0
    kind    INTEGER,             -- of a save: 1 routine, 2 pre_operation, 3 recovery
    seq     INTEGER,             -- of a save: its number in its run
    parent  INTEGER,             -- of a save: the row of the save that it comes from
    size    INTEGER,             -- of a save: bytes of the state
    stored  INTEGER,             -- of a save: bytes that it added; NULL is size
    gone    INTEGER,             -- the row of the save whose checkpoint went
    why     TEXT,                -- it went; a number N says: not among the newest N routine checkpoints
    subject BLOB,                -- what it was done to: the 16 bytes of a UUID
    sha256  BLOB,                -- of a save: 32 bytes, of the state
    rest    BLOB,                -- of a save: 16 bytes, of its content type, metadata, step and program; NULL where they have the defaults
    beside  BLOB,                -- 32 bytes, of the row's texts in act_texts; NULL for none
    more    TEXT,                -- JSON, what has no column; NULL mostly
    hash    BLOB NOT NULL        -- 32 bytes: SHA-256 of the row's text in audit_chain
) STRICT;
-- What people and models may have typed, beside the log: erasing an agent deletes
-- it here. The log has its hash, over the salt too, so that nobody can guess it.
CREATE TABLE IF NOT EXISTS act_texts (
    n       INTEGER PRIMARY KEY, -- the row of acts
    salt    BLOB NOT NULL,       -- 16 random bytes
    subject TEXT,                -- where it is no UUID
    reason  TEXT,
    detail  TEXT                 -- a JSON object
) STRICT;
-- The agents and runs that the audit log names. They outlive both. n is the first
-- row of acts that names one.
CREATE TABLE IF NOT EXISTS places (
    id    INTEGER PRIMARY KEY,
    n     INTEGER NOT NULL,
    owner TEXT NOT NULL, -- '' for none, as agent and run
    agent TEXT NOT NULL,
    run   TEXT NOT NULL,
    life  INTEGER NOT NULL, -- of the run; 0 where there was none
    UNIQUE (owner, agent, run, life)
) STRICT;
-- The ids under which clients have saved in the last week. The row of acts is the
-- record of the save; print tells another request under the same id.
CREATE TABLE IF NOT EXISTS ids (
    id       BLOB NOT NULL,      -- 16 bytes of a UUID
    agent_id INTEGER NOT NULL,
    n        INTEGER NOT NULL,   -- the row of acts
    print    BLOB NOT NULL,      -- 16 bytes, of a SHA-256 of what was asked
    PRIMARY KEY (id, agent_id)
) STRICT, WITHOUT ROWID;

-- Files that hold the oldest rows of the audit log. Rows up to the last to_n may be
-- gone from here, but for those that something here still refers to.
CREATE TABLE IF NOT EXISTS audit_archives (
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
-- The hashes of rows that are gone and that a row which is here follows.
CREATE TABLE IF NOT EXISTS audit_links (
    n    INTEGER PRIMARY KEY,
    hash TEXT NOT NULL
) STRICT;
-- ---------------------------------------------------------------- guards ---
-- What nobody may rewrite by hand. The daemon is bound by them too. REPLACE
-- deletes a row without a word to the triggers on DELETE, so triggers on INSERT
-- refuse a row that is there. acts has none, because it would cost every
-- save; a row that is replaced there breaks the chain. A guard that is dropped
-- or changed is found at the next start and by 'ckptsidecar verify'.

CREATE TRIGGER IF NOT EXISTS acts_are_never_changed BEFORE UPDATE ON acts
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER IF NOT EXISTS acts_are_never_removed BEFORE DELETE ON acts
WHEN OLD.n > coalesce((SELECT max(to_n) FROM audit_archives), 0)
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER IF NOT EXISTS audit_archives_are_never_changed BEFORE UPDATE OF to_n, from_n, hash, name, sha256, bytes, at, who ON audit_archives
BEGIN SELECT RAISE(ABORT, 'what was archived stays recorded as it was'); END;
CREATE TRIGGER IF NOT EXISTS audit_archives_are_never_forgotten BEFORE DELETE ON audit_archives
BEGIN SELECT RAISE(ABORT, 'what was archived stays recorded as it was'); END;
CREATE TRIGGER IF NOT EXISTS audit_archives_follow_one_another BEFORE INSERT ON audit_archives
WHEN NEW.from_n <> coalesce((SELECT max(to_n) FROM audit_archives), 0) + 1 OR NEW.to_n < NEW.from_n
BEGIN SELECT RAISE(ABORT, 'an archive begins where the one before ends'); END;
CREATE TRIGGER IF NOT EXISTS audit_links_are_never_changed BEFORE UPDATE ON audit_links
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER IF NOT EXISTS act_texts_are_never_changed BEFORE UPDATE ON act_texts
BEGIN SELECT RAISE(ABORT, 'what the audit log says stays as it was said'); END;
CREATE TRIGGER IF NOT EXISTS places_are_never_changed BEFORE UPDATE ON places
BEGIN SELECT RAISE(ABORT, 'the names in the audit log stay'); END;
CREATE TRIGGER IF NOT EXISTS places_are_never_removed BEFORE DELETE ON places
BEGIN SELECT RAISE(ABORT, 'the names in the audit log stay'); END;
CREATE TRIGGER IF NOT EXISTS ids_are_never_changed BEFORE UPDATE ON ids
BEGIN SELECT RAISE(ABORT, 'an id stays with the save that it was used for'); END;

-- Labels, the pin and the mark of suspicion change; the rest is as it was saved.
-- A routine checkpoint without a pin may give its row to a later one of its run.
CREATE TRIGGER IF NOT EXISTS checkpoints_are_never_changed BEFORE UPDATE OF slot, n, id, run_id, seq, kind, parent, created_at, size,
    stored_size, sha256, content_type, metadata, step, operation, state_of, program, pieces, body ON checkpoints
WHEN NEW.n <= OLD.n OR NEW.seq <= OLD.seq OR NEW.id = OLD.id OR NEW.slot <> OLD.slot OR NEW.run_id <> OLD.run_id OR OLD.pinned
    OR OLD.kind <> 'routine' OR NEW.kind <> 'routine' OR OLD.pieces IS NOT NULL OR NEW.pieces IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a checkpoint stays as it was saved'); END;
CREATE TRIGGER IF NOT EXISTS checkpoints_are_never_replaced BEFORE INSERT ON checkpoints
WHEN EXISTS (SELECT 1 FROM checkpoints WHERE slot = NEW.slot)
BEGIN SELECT RAISE(ABORT, 'a checkpoint stays as it was saved'); END;
CREATE TRIGGER IF NOT EXISTS segments_are_never_changed BEFORE UPDATE ON segments
BEGIN SELECT RAISE(ABORT, 'the pieces of states stay as they were saved'); END;
CREATE TRIGGER IF NOT EXISTS segments_are_never_replaced BEFORE INSERT ON segments
WHEN NEW.id > 0 AND EXISTS (SELECT 1 FROM segments WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'the pieces of states stay as they were saved'); END;
CREATE TRIGGER IF NOT EXISTS contents_are_never_changed BEFORE UPDATE ON contents
WHEN NEW.id IS NOT OLD.id OR NEW.agent_id IS NOT OLD.agent_id OR NEW.size IS NOT OLD.size OR NEW.fresh IS NOT OLD.fresh OR NEW.data IS NOT OLD.data
  OR NEW.sha256 IS NOT NULL OR NEW.pieces IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a content is never changed'); END;
CREATE TRIGGER IF NOT EXISTS contents_are_never_replaced BEFORE INSERT ON contents
WHEN EXISTS (SELECT 1 FROM contents WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'a content is never changed'); END;
CREATE TRIGGER IF NOT EXISTS trees_are_never_changed BEFORE UPDATE OF id, agent_id, base, root, git_head, captured_at, complete, left_out, files, bytes ON trees
BEGIN SELECT RAISE(ABORT, 'a tree is never changed'); END;
CREATE TRIGGER IF NOT EXISTS trees_keep_their_id BEFORE UPDATE OF sha256 ON trees WHEN NEW.sha256 IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a tree is never changed'); END;
CREATE TRIGGER IF NOT EXISTS tree_files_are_never_changed BEFORE UPDATE ON tree_files
BEGIN SELECT RAISE(ABORT, 'a tree is never changed'); END;
CREATE TRIGGER IF NOT EXISTS events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'the journal of a run is append-only'); END;
CREATE TRIGGER IF NOT EXISTS findings_are_never_changed BEFORE UPDATE OF id, run_id, at, rule, severity, message, advice, evidence,
    about, posted ON findings
BEGIN SELECT RAISE(ABORT, 'what was found stays as it was noted; a finding is closed or dismissed'); END;
CREATE TRIGGER IF NOT EXISTS findings_are_only_reopened BEFORE UPDATE OF checkpoint, since_seq, earlier ON findings
WHEN OLD.closed IS NOT 'recovered' OR NEW.closed IS NOT NULL OR NEW.since_seq < OLD.until_seq
    OR json_array_length(NEW.earlier) <> json_array_length(OLD.earlier) + 1
BEGIN SELECT RAISE(ABORT, 'what was found stays as it was noted; a finding that recovered may be opened again'); END;
CREATE TRIGGER IF NOT EXISTS findings_are_never_replaced BEFORE INSERT ON findings
WHEN EXISTS (SELECT 1 FROM findings WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'what was found stays as it was noted; a finding is closed or dismissed'); END;
CREATE TRIGGER IF NOT EXISTS prompts_are_never_changed BEFORE UPDATE OF id, run_id, at, question, reason, checkpoint, memory_diff, kind, operation, attempt, key, choices, schema, expires_at, asked_seq ON prompts
BEGIN SELECT RAISE(ABORT, 'a question stays as it was asked'); END;
CREATE TRIGGER IF NOT EXISTS operations_are_never_changed BEFORE UPDATE OF id, run_id, key, attempt, name, args, idempotent, self_check, result_schema, checkpoint, started_at ON operations
BEGIN SELECT RAISE(ABORT, 'an operation stays as it was begun'); END;
CREATE TRIGGER IF NOT EXISTS operations_are_never_rewritten BEFORE UPDATE OF status, ended_at, result, error, resolution, resolved_at, resolved_by ON operations
WHEN OLD.status IN ('succeeded', 'failed', 'superseded')
  OR OLD.status = 'uncertain' AND (NEW.ended_at IS NOT OLD.ended_at OR NEW.error IS NOT coalesce(OLD.error, NEW.error))
  OR OLD.status = 'uncertain' AND NEW.status <> 'uncertain' AND NEW.resolution IS NULL
  OR NEW.status <> CASE NEW.resolution WHEN 'it_did' THEN 'succeeded' WHEN 'it_did_not' THEN 'failed' WHEN 'repeat' THEN 'superseded' ELSE NEW.status END
  OR NEW.status = 'superseded' AND OLD.status <> 'uncertain'
BEGIN SELECT RAISE(ABORT, 'an attempt is never rewritten: an uncertain one is resolved'); END;
CREATE TRIGGER IF NOT EXISTS idempotency_is_never_changed BEFORE UPDATE ON idempotency
BEGIN SELECT RAISE(ABORT, 'the reply to a key stays as it was given'); END;
CREATE TRIGGER IF NOT EXISTS agents_keep_their_names BEFORE UPDATE OF id, name, created_at ON agents
BEGIN SELECT RAISE(ABORT, 'an agent keeps its name'); END;
CREATE TRIGGER IF NOT EXISTS agents_change_owners_on_record BEFORE UPDATE OF owner ON agents
WHEN NEW.owner IS NOT (SELECT to_owner FROM owner_changes WHERE agent_id = OLD.id AND from_owner = OLD.owner
                       AND n = (SELECT max(n) FROM owner_changes WHERE agent_id = OLD.id))
BEGIN SELECT RAISE(ABORT, 'an agent keeps its owner until ckptsidecar chown gives it to another'); END;
CREATE TRIGGER IF NOT EXISTS owner_changes_stay BEFORE UPDATE ON owner_changes
BEGIN SELECT RAISE(ABORT, 'who had an agent stays recorded'); END;
CREATE TRIGGER IF NOT EXISTS owner_changes_are_never_removed BEFORE DELETE ON owner_changes
BEGIN SELECT RAISE(ABORT, 'who had an agent stays recorded'); END;
CREATE TRIGGER IF NOT EXISTS owner_changes_are_never_replaced BEFORE INSERT ON owner_changes
WHEN NEW.n <= (SELECT max(n) FROM owner_changes WHERE agent_id = NEW.agent_id)
BEGIN SELECT RAISE(ABORT, 'who had an agent stays recorded'); END;
CREATE TRIGGER IF NOT EXISTS runs_keep_their_names BEFORE UPDATE OF id, agent_id, name, life ON runs
WHEN NEW.id <> OLD.id OR NEW.agent_id <> OLD.agent_id OR NEW.life <> OLD.life OR NEW.base <> OLD.base OR NEW.ago < OLD.ago OR NEW.ended_at IS NULL
BEGIN SELECT RAISE(ABORT, 'a run keeps its agent, its name and its life'); END;
CREATE TRIGGER IF NOT EXISTS agents_get_a_uid AFTER INSERT ON agents WHEN NEW.uid IS NULL
BEGIN UPDATE agents SET uid = printf('%08x-%04x-7%03x-%04x-%s', (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)) >> 16, (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)) & 0xffff, abs(random() % 4096), 0x8000 | abs(random() % 0x4000), lower(hex(randomblob(6)))) WHERE id = NEW.id; END;
CREATE TRIGGER IF NOT EXISTS agents_keep_their_uid BEFORE UPDATE OF uid ON agents WHEN OLD.uid IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'an agent keeps its uid'); END;
CREATE TRIGGER IF NOT EXISTS agents_leave_their_number AFTER DELETE ON agents
BEGIN INSERT INTO meta (key, value) VALUES ('last_agent', OLD.id)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE CAST(excluded.value AS INTEGER) > CAST(value AS INTEGER); END;
CREATE TRIGGER IF NOT EXISTS agents_never_take_a_number_again BEFORE INSERT ON agents
WHEN NEW.id <= (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'last_agent')
BEGIN SELECT RAISE(ABORT, 'the number of an agent is never used again'); END;
CREATE TRIGGER IF NOT EXISTS runs_get_a_uid AFTER INSERT ON runs WHEN NEW.uid IS NULL
BEGIN UPDATE runs SET uid = printf('%08x-%04x-7%03x-%04x-%s', (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)) >> 16, (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)) & 0xffff, abs(random() % 4096), 0x8000 | abs(random() % 0x4000), lower(hex(randomblob(6)))) WHERE id = NEW.id; END;
CREATE TRIGGER IF NOT EXISTS runs_keep_their_uid BEFORE UPDATE OF uid ON runs WHEN OLD.uid IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a run keeps its uid'); END;
CREATE TRIGGER IF NOT EXISTS runs_leave_their_number AFTER DELETE ON runs
BEGIN INSERT INTO meta (key, value) VALUES ('last_run', OLD.id)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE CAST(excluded.value AS INTEGER) > CAST(value AS INTEGER); END;
CREATE TRIGGER IF NOT EXISTS runs_never_take_a_number_again BEFORE INSERT ON runs
WHEN NEW.id <= (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'last_run')
BEGIN SELECT RAISE(ABORT, 'the number of a run is never used again'); END;
CREATE TRIGGER IF NOT EXISTS the_database_keeps_its_id BEFORE UPDATE ON meta WHEN OLD.key IN ('database_id', 'created_at', 'chain_key')
BEGIN SELECT RAISE(ABORT, 'the database keeps its id'); END;
CREATE TRIGGER IF NOT EXISTS the_database_never_loses_its_id BEFORE DELETE ON meta WHEN OLD.key IN ('database_id', 'created_at', 'chain_key')
BEGIN SELECT RAISE(ABORT, 'the database keeps its id'); END;
CREATE TRIGGER IF NOT EXISTS the_database_gets_one_id BEFORE INSERT ON meta
WHEN NEW.key IN ('database_id', 'created_at', 'chain_key') AND EXISTS (SELECT 1 FROM meta WHERE key = NEW.key)
BEGIN SELECT RAISE(ABORT, 'the database keeps its id'); END;


-- ----------------------------------------------------------------- views ---
-- Contract: names and columns stay. A start makes each view anew that differs
-- from the one here, so that a newer version can add to it.

DROP VIEW IF EXISTS audit_violations;
DROP VIEW IF EXISTS audit_removals;
DROP VIEW IF EXISTS audit_chain;
DROP VIEW IF EXISTS audit_texts;
DROP VIEW IF EXISTS audit_log;
DROP VIEW IF EXISTS audit_head;
DROP VIEW IF EXISTS acts_text;
DROP VIEW IF EXISTS audit_agents;
DROP VIEW IF EXISTS audit_owners;
DROP VIEW IF EXISTS audit_runs;
DROP VIEW IF EXISTS audit_checkpoints;
DROP VIEW IF EXISTS audit_states;
DROP VIEW IF EXISTS audit_steps;
DROP VIEW IF EXISTS audit_operations;
DROP VIEW IF EXISTS audit_findings;
DROP VIEW IF EXISTS audit_prompts;
DROP VIEW IF EXISTS audit_events;
DROP VIEW IF EXISTS audit_graph_checkpoints;
DROP VIEW IF EXISTS audit_graph_writes;
DROP VIEW IF EXISTS audit_policies;
DROP VIEW IF EXISTS audit_archived;
DROP VIEW IF EXISTS needed_checkpoints;
DROP VIEW IF EXISTS suspicions;
DROP VIEW IF EXISTS audit_trees;
DROP VIEW IF EXISTS audit_files;
DROP VIEW IF EXISTS tree_lists;

CREATE VIEW audit_agents (agent, owner, created_at, updated_at, runs, checkpoints, stored_bytes, policy, policy_own, policy_at, uid, files_bytes) AS
SELECT a.name, a.owner, a.created_at, coalesce(max(r.updated_at), a.created_at), count(r.id),
       coalesce(sum(r.last_seq - r.removed), 0), coalesce(sum(r.stored_bytes), 0), a.policy, a.policy_own, a.policy_at, a.uid,
       (SELECT coalesce(sum(length(data)), 0) FROM contents c WHERE c.agent_id = a.id)
FROM agents a LEFT JOIN runs r ON r.agent_id = a.id
GROUP BY a.id;

-- Agents that were given to another owner, also those that were erased since. Row n of
-- audit_log says who did it, when and why.
CREATE VIEW audit_owners (n, agent, from_owner, to_owner, uid) AS
SELECT n, agent, from_owner, to_owner, uid FROM owner_changes;

-- Policies for more than one agent; the owner * is everybody.
CREATE VIEW audit_policies (owner, policy, set_at) AS SELECT owner, policy, set_at FROM policies;

-- Each life of a run has a row; run and life tell it in every view. ago is 0 for the present
-- life, and 2 for the one that a reference calls main~2.
CREATE VIEW audit_runs (agent, owner, run, life, ago, workflow, status, epoch, attempt, pid, parent_run, started_at, updated_at,
    ended_at, accumulated_ms, goal, progress, continuation_prompt, external_session, labels, checkpoints, stored_bytes, source, partial, uid, command) AS
SELECT a.name, a.owner, r.base, r.life, r.ago, r.workflow,
       CASE WHEN r.status = 'running' AND r.last_seq = 0 AND r.source IS NULL THEN 'starting' ELSE r.status END,
       r.epoch, r.attempt, r.pid, r.parent_run, r.started_at, r.updated_at, r.ended_at, r.accumulated_ms, r.goal,
       r.progress, r.continuation_prompt, r.external_session, r.labels, r.last_seq - r.removed, r.stored_bytes, r.source, r.partial, r.uid, r.command
FROM runs r JOIN agents a ON a.id = r.agent_id;

CREATE VIEW audit_checkpoints (id, owner, agent, run, life, seq, kind, created_at, size, stored_size, sha256, parent, step,
    operation, pinned, suspect, labels, metadata, content_type, program) AS
SELECT c.id, a.owner, a.name, r.base, r.life, c.seq, c.kind, c.created_at, c.size, c.stored_size, c.sha256, c.parent, c.step,
       c.operation, c.pinned, c.suspect, c.labels, c.metadata, c.content_type, c.program
FROM checkpoints c JOIN runs r ON r.id = c.run_id JOIN agents a ON a.id = r.agent_id;

-- The states that are JSON, as text. sqlar_uncompress is in the sqlite3 command.
CREATE VIEW audit_states (id, owner, agent, run, life, seq, kind, state) AS
SELECT c.id, a.owner, a.name, r.base, r.life, c.seq, c.kind,
       CASE WHEN c.pieces IS NULL THEN CAST(c.body AS TEXT)
       ELSE (SELECT group_concat(bytes, '') FROM
               (SELECT CAST(substr(sqlar_uncompress(s.data, s.size),
                                   json_extract(p.value, '$[1]') + 1, json_extract(p.value, '$[2]')) AS TEXT) AS bytes
                FROM json_each(c.pieces) p JOIN segments s ON s.id = json_extract(p.value, '$[0]')
                ORDER BY p.key))
       END
FROM checkpoints c JOIN runs r ON r.id = c.run_id JOIN agents a ON a.id = r.agent_id
WHERE c.content_type LIKE 'application/json%' OR c.content_type LIKE '%+json%';

CREATE VIEW audit_steps (agent, owner, run, life, key, attempt, name, status, args, result, error, started_at, ended_at,
    duration_ms, input_tokens, output_tokens, cost_usd, progress, turn, outcome) AS
SELECT a.name, a.owner, r.base, r.life, s.key, s.attempt, s.name, s.status, s.args, s.result, s.error, s.started_at, s.ended_at,
       s.duration_ms, s.input_tokens, s.output_tokens, s.cost_usd, s.progress, s.turn, s.outcome
FROM steps s JOIN runs r ON r.id = s.run_id JOIN agents a ON a.id = r.agent_id;

CREATE VIEW audit_operations (agent, owner, run, life, key, attempt, name, status, checkpoint, started_at, ended_at, result, error,
    args, idempotent, resolution, resolved_at, resolved_by, left_uncertain) AS
SELECT a.name, a.owner, r.base, r.life, o.key, o.attempt, o.name, o.status, o.checkpoint, o.started_at, o.ended_at, o.result, o.error,
       o.args, o.idempotent, o.resolution, o.resolved_at, o.resolved_by, o.left_uncertain
FROM operations o JOIN runs r ON r.id = o.run_id JOIN agents a ON a.id = r.agent_id;

CREATE VIEW audit_findings (id, agent, owner, run, life, at, rule, severity, message, evidence, checkpoint, dismissed_at, dismissed_by,
    advice, since_seq, until_seq, closed, closed_at, about, posted, earlier) AS
SELECT f.id, a.name, a.owner, r.base, r.life, f.at, f.rule, f.severity, f.message, f.evidence, f.checkpoint, f.dismissed_at, f.dismissed_by,
       f.advice, f.since_seq, f.until_seq, f.closed, f.closed_at, f.about, f.posted, f.earlier
FROM findings f JOIN runs r ON r.id = f.run_id JOIN agents a ON a.id = r.agent_id;

CREATE VIEW audit_prompts (id, agent, owner, run, life, at, question, reason, checkpoint, choice, answered_at, answered_by, kind, key, choices, schema, expires_at, data, operation, attempt) AS
SELECT p.id, a.name, a.owner, r.base, r.life, p.at, CASE WHEN p.kind = 'operation' THEN 'Did operation ' || p.operation || ' take effect?' ELSE p.question END,
       p.reason, p.checkpoint, coalesce(p.choice, p.answer), p.answered_at, p.answered_by,
       p.kind, p.key, p.choices, p.schema, p.expires_at, p.data, p.operation, p.attempt
FROM prompts p JOIN runs r ON r.id = p.run_id JOIN agents a ON a.id = r.agent_id;

CREATE VIEW audit_events (agent, owner, run, life, seq, at, type, payload) AS
SELECT a.name, a.owner, r.base, r.life, e.seq, e.at, e.type, e.payload
FROM events e JOIN runs r ON r.id = e.run_id JOIN agents a ON a.id = r.agent_id;

-- LangGraph's checkpoints, and the ordinary ones that they are; audit_states has
-- their values, by id.
CREATE VIEW audit_graph_checkpoints (id, agent, owner, run, life, seq, created_at, thread, ns, checkpoint, parent, channels, metadata) AS
SELECT c.id, a.name, a.owner, r.base, r.life, c.seq, c.created_at, t.thread, t.ns, g.id, g.parent, g.channels, c.metadata
FROM graph_checkpoints g JOIN checkpoints c ON c.slot = g.slot JOIN graph_threads t ON t.run_id = g.run_id
JOIN runs r ON r.id = g.run_id JOIN agents a ON a.id = r.agent_id;

-- The writes of its tasks. value is text where the type says that it is JSON.
CREATE VIEW audit_graph_writes (agent, owner, run, life, thread, ns, checkpoint, task, idx, path, channel, type, size, value) AS
SELECT a.name, a.owner, r.base, r.life, t.thread, t.ns, w.checkpoint, w.task, w.idx, w.path, w.channel, w.type, w.size,
       CASE WHEN w.type LIKE '%json' THEN CAST(sqlar_uncompress(w.data, w.size) AS TEXT) ELSE sqlar_uncompress(w.data, w.size) END
FROM graph_writes w JOIN graph_threads t ON t.run_id = w.run_id JOIN runs r ON r.id = w.run_id JOIN agents a ON a.id = r.agent_id;

-- Columns of acts as text: what the next views share.
CREATE VIEW acts_text (n, at, subject, kind, seq, why, prev) AS
SELECT a.n, strftime('%Y-%m-%dT%H:%M:%S', a.at / 1000, 'unixepoch') || printf('.%03dZ', a.at % 1000),
       nullif(lower(substr(hex(a.subject), 1, 8) || '-' || substr(hex(a.subject), 9, 4) || '-' || substr(hex(a.subject), 13, 4) || '-' || substr(hex(a.subject), 17, 4) || '-' || substr(hex(a.subject), 21)), '----'),
       CASE a.kind WHEN 1 THEN 'routine' WHEN 2 THEN 'pre_operation' WHEN 3 THEN 'recovery' END, a.seq,
       CASE WHEN a.why NOT GLOB '*[^0-9]*' THEN 'not among the newest ' || a.why || ' routine checkpoints' ELSE a.why END,
       coalesce((SELECT lower(hex(b.hash)) FROM acts b WHERE b.n = a.n - 1), (SELECT b.hash FROM audit_links b WHERE b.n = a.n - 1), '')
FROM acts a;

-- The newest row of the audit log.
CREATE VIEW audit_head (n, hash) AS
SELECT coalesce((SELECT max(n) FROM acts), 0), coalesce((SELECT lower(hex(hash)) FROM acts ORDER BY n DESC LIMIT 1), '');

-- Who did what, when, and how it went. removed is a JSON array of the checkpoints
-- that went because of it; audit_removals has a row for each.
CREATE VIEW audit_log (n, at, who, pid, action, owner, agent, run, life, subject, outcome, reason, retries, detail, prev, hash, removed) AS
SELECT a.n, x.at, coalesce(a.who, p.owner), a.pid, a.action, nullif(p.owner, ''), nullif(p.agent, ''), nullif(p.run, ''), nullif(p.life, 0),
       coalesce(x.subject, t.subject), coalesce(a.outcome, 'done'),
       coalesce(t.reason, CASE WHEN a.sha256 IS NULL THEN x.why END), coalesce(a.retries, 0),
       CASE WHEN a.sha256 IS NULL AND a.gone IS NULL THEN coalesce(t.detail, '{}')
       WHEN a.sha256 IS NULL THEN (SELECT json_object('kind', g.kind, 'seq', g.seq) FROM (SELECT a.gone AS n) i LEFT JOIN acts_text g ON g.n = i.n)
       WHEN a.rest IS NULL AND a.more IS NULL AND t.detail IS NULL THEN json_object('kind', x.kind, 'seq', a.seq, 'sha256', lower(hex(a.sha256)), 'size', a.size)
       ELSE json_patch(json_patch(json_object('kind', x.kind, 'seq', a.seq, 'sha256', lower(hex(a.sha256)), 'size', a.size),
                                  json_patch(json_object('rest', nullif(lower(hex(a.rest)), '')), json_remove(coalesce(a.more, '{}'), '$.parent', '$.removed'))),
                       coalesce(t.detail, '{}')) END,
       x.prev, lower(hex(a.hash)),
       CASE WHEN a.gone IS NOT NULL THEN (SELECT json_array(json_object('id', g.subject, 'kind', g.kind, 'seq', g.seq, 'reason', x.why))
            FROM (SELECT a.gone AS n) i LEFT JOIN acts_text g ON g.n = i.n)
       WHEN a.more IS NULL THEN '[]'
       ELSE (SELECT json_group_array(json_object('id', g.subject, 'kind', g.kind, 'seq', g.seq, 'reason', r.value ->> 1))
            FROM json_each(a.more, '$.removed') r LEFT JOIN acts_text g ON g.n = r.value ->> 0) END
FROM acts a JOIN acts_text x ON x.n = a.n LEFT JOIN places p ON p.id = a.place LEFT JOIN act_texts t ON t.n = a.n;

-- The files that hold the oldest rows of the audit log.
CREATE VIEW audit_archived (from_n, to_n, hash, name, sha256, bytes, at, who, removed) AS
SELECT from_n, to_n, hash, name, sha256, bytes, at, who, removed FROM audit_archives;

-- One row for each checkpoint that is gone, but for those that went with all of
-- their agent. n is the row of audit_log that records it.
CREATE VIEW audit_removals (n, at, who, owner, agent, run, life, id, kind, seq, reason) AS
SELECT r.n, x.at, coalesce(a.who, y.owner), p.owner, p.agent, p.run, p.life, g.subject, g.kind, g.seq, coalesce(r.reason, x.why)
FROM (SELECT n, gone, NULL AS reason FROM acts WHERE gone IS NOT NULL
      UNION ALL SELECT a.n, e.value ->> 0, e.value ->> 1 FROM acts a, json_each(a.more, '$.removed') e WHERE a.more IS NOT NULL) r
JOIN acts a ON a.n = r.n JOIN acts_text x ON x.n = r.n LEFT JOIN places y ON y.id = a.place
LEFT JOIN acts_text g ON g.n = r.gone LEFT JOIN acts b ON b.n = r.gone LEFT JOIN places p ON p.id = b.place;

-- The chain of the audit log: the SHA-256 of input's bytes is hash. input ends
-- with a secret of this database and the hash of the row before.
CREATE VIEW audit_chain (n, input, hash) AS
SELECT a.n, json_array(a.n, a.at, coalesce(a.who, p.owner), a.pid, a.action, p.owner, p.agent, p.run, p.life, a.outcome, a.retries, a.kind, a.seq, a.parent, a.size, a.stored,
                       a.gone, a.why, hex(a.subject), hex(a.sha256), hex(a.rest), hex(a.beside), a.more,
                       (SELECT value FROM meta WHERE key = 'chain_key'),
                       coalesce((SELECT lower(hex(b.hash)) FROM acts b WHERE b.n = a.n - 1), (SELECT b.hash FROM audit_links b WHERE b.n = a.n - 1), '')),
       lower(hex(a.hash))
FROM acts a LEFT JOIN places p ON p.id = a.place;

-- What people and models typed: the SHA-256 of input's bytes is hash, which is in
-- the row of the log. Erasing an agent removes these.
CREATE VIEW audit_texts (n, input, hash) AS
SELECT t.n, json_array(lower(hex(t.salt)), t.subject, t.reason, t.detail), lower(hex(a.beside))
FROM act_texts t LEFT JOIN acts a ON a.n = t.n;

-- The checkpoints that something still needs, and what. Retention passes them over.
CREATE VIEW needed_checkpoints (id, needed_by) AS
SELECT checkpoint, 'an ' || status || ' operation' FROM operations WHERE status IN ('open', 'uncertain') AND checkpoint IS NOT NULL
UNION ALL
SELECT checkpoint, 'a prompt' FROM prompts WHERE answered_at IS NULL AND checkpoint IS NOT NULL
UNION ALL
SELECT forked_from, 'a fork' FROM runs WHERE forked_from IS NOT NULL AND last_seq = 0 AND ended_at IS NULL
UNION ALL
SELECT head, 'the next save' FROM runs WHERE head IS NOT NULL AND ended_at IS NULL
UNION ALL
SELECT c.id, 'drift that may be beginning' FROM runs r JOIN checkpoints c ON c.run_id = r.id
WHERE r.back_seq IS NOT NULL AND r.ended_at IS NULL
  AND c.seq = (SELECT max(o.seq) FROM checkpoints o WHERE o.run_id = r.id AND o.suspect = 0 AND o.seq <= r.back_seq
               AND NOT EXISTS (SELECT 1 FROM meta WHERE key = 'damaged:' || o.id));

-- The trees of files that checkpoints name. One that was let go of says why.
CREATE VIEW audit_trees (checkpoint, owner, agent, run, life, seq, tree, root, git_head, captured_at, complete, files, bytes, left_out, gone) AS
SELECT c.id, a.owner, a.name, r.base, r.life, c.seq, t.sha256, t.root, t.git_head, t.captured_at, t.complete, t.files, t.bytes, t.left_out, x.gone
FROM checkpoint_trees x JOIN checkpoints c ON c.run_id = x.run_id AND c.kind IN ('routine', 'pre_operation', 'recovery') AND c.seq = x.seq AND c.n = x.n
JOIN runs r ON r.id = c.run_id JOIN agents a ON a.id = r.agent_id LEFT JOIN trees t ON t.id = x.tree_id;

-- The lists of trees, each whole.
-- The checkpoints of a run that are suspect, from since_seq on, because of critical findings, and because of warnings
-- about states that are closed. While such a warning is open, a way back leads before its checkpoints.
CREATE VIEW suspicions (id, run_id, rule, since_seq, until_seq) AS
SELECT id, run_id, rule, since_seq, until_seq FROM findings
WHERE (severity = 'critical' OR severity = 'warn' AND about = 'state' AND closed IS NOT NULL) AND dismissed_at IS NULL AND since_seq IS NOT NULL
UNION ALL
SELECT f.id, f.run_id, f.rule, e.value ->> 'since_seq', e.value ->> 'until_seq' FROM findings f, json_each(f.earlier) e
WHERE (f.severity = 'critical' OR f.severity = 'warn' AND f.about = 'state') AND f.dismissed_at IS NULL AND f.earlier <> '[]' AND f.since_seq IS NOT NULL;

CREATE VIEW tree_lists (tree_id, path, mode, content_id, target) AS
SELECT tree_id, path, mode, content_id, target FROM tree_files WHERE mode <> 'gone'
UNION ALL
SELECT t.id, b.path, b.mode, b.content_id, b.target FROM trees t JOIN tree_files b ON b.tree_id = t.base
WHERE NOT EXISTS (SELECT 1 FROM tree_files o WHERE o.tree_id = t.id AND o.path = b.path);

-- The files of checkpoints. change is what became of the path since the checkpoint
-- before of the same run that names a tree of the same root: added, modified, mode,
-- removed, or NULL. A link has no hash.
CREATE VIEW audit_files (checkpoint, path, mode, size, sha256, change) AS
WITH sides AS (
    SELECT c.id AS checkpoint, x.tree_id AS now,
           (SELECT y.tree_id FROM checkpoint_trees y JOIN trees u ON u.id = y.tree_id
            WHERE y.run_id = x.run_id AND y.seq < x.seq AND u.root = t.root ORDER BY y.seq DESC LIMIT 1) AS before
    FROM checkpoint_trees x JOIN trees t ON t.id = x.tree_id
    JOIN checkpoints c ON c.run_id = x.run_id AND c.kind IN ('routine', 'pre_operation', 'recovery') AND c.seq = x.seq AND c.n = x.n
)
SELECT s.checkpoint, f.path, f.mode, coalesce(c.size, length(CAST(f.target AS BLOB))), CASE WHEN c.sha256 IS NOT NULL THEN lower(hex(c.sha256)) END,
       CASE WHEN s.before IS NULL THEN NULL
            WHEN b.path IS NULL THEN 'added'
            WHEN b.content_id IS NOT f.content_id OR b.target IS NOT f.target THEN 'modified'
            WHEN b.mode <> f.mode THEN 'mode' END
FROM sides s JOIN tree_lists f ON f.tree_id = s.now LEFT JOIN tree_lists b ON b.tree_id = s.before AND b.path = f.path
LEFT JOIN contents c ON c.id = f.content_id
UNION ALL
SELECT s.checkpoint, b.path, b.mode, coalesce(c.size, length(CAST(b.target AS BLOB))), CASE WHEN c.sha256 IS NOT NULL THEN lower(hex(c.sha256)) END, 'removed'
FROM sides s JOIN tree_lists b ON b.tree_id = s.before LEFT JOIN contents c ON c.id = b.content_id
WHERE NOT EXISTS (SELECT 1 FROM tree_lists f WHERE f.tree_id = s.now AND f.path = b.path);

-- Every broken invariant; empty at all times. What only a program can check
-- (the hashes of states and of the audit chain) is checked by
-- 'ckptsidecar verify'; what the daemon has found damaged itself is here too.
CREATE VIEW audit_violations (rule, subject, detail) AS
WITH
policies AS (
    SELECT id AS agent_id, coalesce(json_extract(policy, '$.routine_keep'), 3) AS routine_keep FROM agents
),
damaged AS MATERIALIZED ( -- known to be damaged: none of these counts as kept, or as a way back
    SELECT substr(key, 9) AS id, value AS why FROM meta WHERE key >= 'damaged:' AND key < 'damaged;'
),
intact AS (SELECT * FROM checkpoints WHERE id NOT IN (SELECT id FROM damaged)),
way_back AS MATERIALIZED ( -- once for all; of a resumable run its newest intact checkpoint that is not suspect; of others, and where there is none, the newest intact one, else the newest
    SELECT r.id AS run_id,
           coalesce((SELECT max(c.seq) FROM intact c WHERE c.run_id = r.id AND c.suspect = 0 AND r.ended_at IS NULL),
                    (SELECT max(c.seq) FROM intact c WHERE c.run_id = r.id),
                    (SELECT max(c.seq) FROM checkpoints c WHERE c.run_id = r.id)) AS seq
    FROM runs r
),
free AS ( -- what retention may remove
    SELECT c.* FROM checkpoints c
    WHERE c.pinned = 0
      AND c.id NOT IN (SELECT id FROM needed_checkpoints)
      AND NOT EXISTS (SELECT 1 FROM way_back w WHERE w.run_id = c.run_id AND w.seq = c.seq)
),
ranked AS (
    SELECT run_id, id, row_number() OVER (PARTITION BY run_id ORDER BY seq DESC) AS place
    FROM intact WHERE kind = 'routine'
),
pieces AS (
    SELECT c.slot, c.run_id, c.id, c.size, json_extract(p.value, '$[0]') AS segment, json_extract(p.value, '$[1]') AS start,
           json_extract(p.value, '$[2]') AS length
    FROM checkpoints c, json_each(c.pieces) p WHERE c.pieces IS NOT NULL
),
recorded AS ( -- columns of a checkpoint that differ from the audit row of its save
    SELECT c.n, c.id, x.n IS NULL AS gone,
           CASE WHEN x.action NOT IN ('save', 'import') OR x.outcome IS NOT NULL THEN ', save' ELSE '' END
           || CASE WHEN lower(hex(x.subject)) IS NOT replace(c.id, '-', '') THEN ', id' ELSE '' END
           || CASE WHEN p.owner IS NOT coalesce((SELECT o.from_owner FROM owner_changes o WHERE o.agent_id = a.id AND o.n >= c.n ORDER BY o.n LIMIT 1), a.owner) OR p.agent IS NOT a.name OR p.run IS NOT r.base OR p.life IS NOT r.life THEN ', agent or run' ELSE '' END
           || CASE WHEN x.action = 'save' AND strftime('%Y-%m-%dT%H:%M:%S', x.at / 1000, 'unixepoch') || printf('.%03dZ', x.at % 1000) <> c.created_at THEN ', created_at' ELSE '' END
           || CASE WHEN CASE x.kind WHEN 1 THEN 'routine' WHEN 2 THEN 'pre_operation' WHEN 3 THEN 'recovery' END IS NOT c.kind THEN ', kind' ELSE '' END
           || CASE WHEN x.seq IS NOT c.seq THEN ', seq' ELSE '' END
           || CASE WHEN x.size IS NOT c.size THEN ', size' ELSE '' END
           || CASE WHEN lower(hex(x.sha256)) IS NOT c.sha256 THEN ', sha256' ELSE '' END AS differs
    FROM checkpoints c JOIN runs r ON r.id = c.run_id JOIN agents a ON a.id = r.agent_id
    LEFT JOIN acts x ON x.n = c.n LEFT JOIN places p ON p.id = x.place
),
numbered AS ( -- that one act follows the other is in their hashes, which a program checks
    SELECT n, lag(n, 1, 0) OVER (ORDER BY n) AS n_before FROM acts
),
archived AS ( -- rows that are gone rightly and that others follow
    SELECT n FROM audit_links WHERE n <= (SELECT max(to_n) FROM audit_archives)
),
last AS (SELECT coalesce(max(n), 0) AS n FROM acts)
SELECT 'routine_excess', f.id, 'routine checkpoint number ' || k.place || ' of its run; the policy keeps ' || p.routine_keep
FROM free f JOIN ranked k ON k.run_id = f.run_id AND k.id = f.id JOIN runs r ON r.id = f.run_id JOIN policies p ON p.agent_id = r.agent_id
WHERE f.kind = 'routine' AND p.routine_keep > 0 AND k.place > p.routine_keep AND r.ended_at IS NULL
UNION ALL -- age is judged when retention last looked and could trust the clock; what changed since then waits for it to look again
SELECT 'recovery_expired', f.id, 'made ' || f.created_at || ', kept for ' || a.recovery_keep_s || ' s, ages last judged ' || m.value
FROM free f JOIN runs r ON r.id = f.run_id JOIN agents a ON a.id = r.agent_id JOIN meta m ON m.key = 'ages_judged_at'
WHERE f.kind = 'recovery'
  AND (julianday(m.value) - julianday(f.created_at)) * 86400 > a.recovery_keep_s + 1
  AND max(r.updated_at, a.policy_at) < m.value
UNION ALL -- likewise; one that belongs to an operation has no age
SELECT 'pre_operation_expired', f.id, 'made ' || f.created_at || ' without an operation, kept for ' || a.pre_operation_keep_s || ' s, ages last judged ' || m.value
FROM free f JOIN runs r ON r.id = f.run_id JOIN agents a ON a.id = r.agent_id JOIN meta m ON m.key = 'ages_judged_at'
WHERE f.kind = 'pre_operation' AND f.operation IS NULL AND a.pre_operation_keep_s > 0
  AND (julianday(m.value) - julianday(f.created_at)) * 86400 > a.pre_operation_keep_s + 1
  AND max(r.updated_at, a.policy_at) < m.value
UNION ALL
SELECT 'operation_succeeded', f.id, 'its operation ' || o.key || ' succeeded ' || o.ended_at
FROM free f JOIN operations o ON o.run_id = f.run_id AND o.key = f.operation
WHERE f.kind = 'pre_operation' AND o.status = 'succeeded'
UNION ALL
SELECT 'not_suspect', c.id, 'the finding ' || f.id || ' (' || f.rule || ') is about it'
FROM suspicions f JOIN checkpoints c ON c.run_id = f.run_id AND c.seq > f.since_seq AND c.seq <= coalesce(f.until_seq, c.seq)
WHERE c.suspect = 0
UNION ALL -- a checkpoint that was saved as suspect says so in its row of the audit log
SELECT 'suspect', c.id, 'it is suspect, and no finding that stands is about it'
FROM checkpoints c JOIN acts x ON x.n = c.n
WHERE c.suspect = 1 AND json_extract(x.more, '$.suspect') IS NULL
  AND NOT EXISTS (SELECT 1 FROM suspicions f WHERE f.run_id = c.run_id AND c.seq > f.since_seq AND c.seq <= coalesce(f.until_seq, c.seq))
UNION ALL
SELECT 'damaged', id, why FROM damaged
UNION ALL
SELECT 'state_missing', id, 'has neither a body nor pieces, or both' FROM checkpoints WHERE (body IS NULL) = (pieces IS NULL)
UNION ALL
SELECT 'state_size', id, 'the body has ' || length(body) || ' bytes, the state ' || size
FROM checkpoints WHERE body IS NOT NULL AND length(body) <> size
UNION ALL
SELECT 'piece_missing', p.id, 'segment ' || p.segment || ' of its run is missing or too short'
FROM pieces p LEFT JOIN segments s ON s.id = p.segment AND s.run_id = p.run_id WHERE s.id IS NULL OR p.start < 0 OR p.start + p.length > s.size
UNION ALL
SELECT 'state_size', id, 'the pieces have ' || sum(length) || ' bytes, the state ' || size
FROM pieces GROUP BY slot HAVING sum(length) <> size
UNION ALL
SELECT 'sequence', a.name || '/' || r.name, 'last_seq ' || r.last_seq || ', removed ' || r.removed || ', there ' || count(c.n)
FROM runs r JOIN agents a ON a.id = r.agent_id LEFT JOIN checkpoints c ON c.run_id = r.id
GROUP BY r.id HAVING count(c.n) <> r.last_seq - r.removed OR coalesce(max(c.seq), 0) > r.last_seq
UNION ALL
SELECT 'sequence', min(id), 'the sequence number ' || seq || ' occurs ' || count(*) || ' times in a run'
FROM checkpoints GROUP BY run_id, seq HAVING count(*) > 1
UNION ALL
SELECT 'sequence', a.name || '/' || r.name, 'events 1 to ' || r.last_event || ': ' || count(e.seq) || ' from ' || min(e.seq) || ' to ' || max(e.seq)
FROM runs r JOIN agents a ON a.id = r.agent_id JOIN events e ON e.run_id = r.id
GROUP BY r.id HAVING max(e.seq) <> r.last_event OR count(*) <> max(e.seq) - min(e.seq) + 1
UNION ALL
SELECT 'graph_run', c.id, 'LangGraph''s checkpoint ' || g.id || ' is listed under another run'
FROM graph_checkpoints g JOIN checkpoints c ON c.slot = g.slot WHERE g.run_id <> c.run_id
UNION ALL
SELECT 'id', c.id, count(*) || ' checkpoints of ' || a.owner || ' have it'
FROM (SELECT id FROM checkpoints GROUP BY id HAVING count(*) > 1) d JOIN checkpoints c ON c.id = d.id JOIN runs r ON r.id = c.run_id JOIN agents a ON a.id = r.agent_id
GROUP BY c.id, a.owner HAVING count(*) > 1
UNION ALL
SELECT 'slot', c.id, 'it stands in the row of another run' FROM checkpoints c WHERE c.slot >> 32 <> c.run_id
UNION ALL
SELECT 'audit_row', id, 'row ' || n || ' of the audit log, which records its save, is gone' FROM recorded WHERE gone
UNION ALL
SELECT 'audit_row', id, 'differs from row ' || n || ' of the audit log, which records its save, in its ' || substr(differs, 3)
FROM recorded WHERE NOT gone AND differs <> ''
UNION ALL
SELECT 'owner_change', o.agent, 'the audit log does not record in its rows ' || o.n || ' and ' || (o.n + 1) || ' that ' || o.from_owner || ' gave it to ' || o.to_owner
FROM owner_changes o
WHERE NOT EXISTS (SELECT 1 FROM acts x JOIN places p ON p.id = x.place
                  WHERE x.n = o.n AND x.action = 'give_agent' AND x.outcome IS NULL AND p.owner = o.from_owner AND p.agent = o.agent AND lower(hex(x.subject)) = replace(o.uid, '-', ''))
   OR NOT EXISTS (SELECT 1 FROM acts x JOIN places p ON p.id = x.place
                  WHERE x.n = o.n + 1 AND x.action = 'receive_agent' AND x.outcome IS NULL AND p.owner = o.to_owner AND p.agent = o.agent AND lower(hex(x.subject)) = replace(o.uid, '-', ''))
UNION ALL
SELECT 'owner_change', a.name, 'it belongs to ' || a.owner || ', and was last given to ' || o.to_owner
FROM agents a JOIN owner_changes o ON o.agent_id = a.id AND o.n = (SELECT max(n) FROM owner_changes WHERE agent_id = a.id)
WHERE o.to_owner <> a.owner
UNION ALL
SELECT 'owner_change', o.agent, o.from_owner || ' gave it away in row ' || o.n || ', and ' || b.to_owner || ' had it'
FROM owner_changes o JOIN owner_changes b ON b.agent_id = o.agent_id AND b.n = (SELECT max(n) FROM owner_changes WHERE agent_id = o.agent_id AND n < o.n)
WHERE b.to_owner <> o.from_owner
UNION ALL
SELECT 'audit_removal', c.id, 'row ' || a.n || ' of the audit log records that it went, and it is there'
FROM acts a JOIN checkpoints c ON c.n = a.gone
UNION ALL
SELECT 'audit_chain', 'row ' || n, 'does not follow the row before' FROM numbered WHERE n <> n_before + 1 AND n - 1 NOT IN (SELECT n FROM archived)
UNION ALL
SELECT 'audit_chain', 'end', 'the last row is ' || l.n || ', and ' || u.what || ' names row ' || u.n
FROM last l, (SELECT 'a checkpoint' AS what, max(n) AS n FROM checkpoints UNION ALL SELECT 'an id', max(n) FROM ids UNION ALL SELECT 'a text', max(n) FROM act_texts) u WHERE u.n > l.n
UNION ALL
SELECT 'audit_archive', name, 'no row of the audit log records that rows ' || from_n || ' to ' || to_n || ' were archived'
FROM audit_archives WHERE to_n = (SELECT max(to_n) FROM audit_archives)
  AND to_n NOT IN (SELECT json_extract(t.detail, '$.to_n') FROM acts a JOIN act_texts t ON t.n = a.n
                                       WHERE a.action = 'archive_audit' AND a.outcome IS NULL)
  AND (EXISTS (SELECT 1 FROM agents) -- an archive may end before the row that records the archive before it
    OR NOT EXISTS (SELECT 1 FROM meta WHERE key = 'erased_later'))
UNION ALL
SELECT 'content_missing', coalesce(t.sha256, 'list ' || t.id), 'the content of ' || f.path || ' is not there'
FROM tree_files f JOIN trees t ON t.id = f.tree_id LEFT JOIN contents c ON c.id = f.content_id
WHERE f.mode NOT IN ('link', 'gone') AND (c.id IS NULL OR c.sha256 IS NULL OR c.agent_id <> t.agent_id)
UNION ALL
SELECT 'content_piece', lower(hex(c.sha256)), 'the row ' || json_extract(p.value, '$[0]') || ' is missing or too short'
FROM contents c, json_each(c.pieces) p LEFT JOIN contents d ON d.id = CASE json_extract(p.value, '$[0]') WHEN 0 THEN c.id ELSE json_extract(p.value, '$[0]') END
WHERE c.pieces IS NOT NULL AND (d.id IS NULL OR d.agent_id <> c.agent_id OR json_extract(p.value, '$[1]') < 0
  OR json_extract(p.value, '$[1]') + json_extract(p.value, '$[2]') > d.fresh)
UNION ALL
SELECT 'content_size', lower(hex(c.sha256)), 'it has ' || coalesce((SELECT sum(json_extract(p.value, '$[2]')) FROM json_each(c.pieces) p), c.fresh) || ' bytes, and should have ' || c.size
FROM contents c WHERE c.sha256 IS NOT NULL AND c.size <> coalesce((SELECT sum(json_extract(p.value, '$[2]')) FROM json_each(c.pieces) p), c.fresh)
UNION ALL
SELECT 'content_size', lower(hex(sha256)), 'its row has more bytes than it should' FROM contents WHERE length(data) > fresh
UNION ALL
SELECT 'tree_missing', c.id, 'tree ' || x.tree_id || ', which it names, is not there'
FROM checkpoint_trees x JOIN checkpoints c ON c.run_id = x.run_id AND c.kind IN ('routine', 'pre_operation', 'recovery') AND c.seq = x.seq AND c.n = x.n
LEFT JOIN trees t ON t.id = x.tree_id WHERE x.tree_id IS NOT NULL AND (t.id IS NULL OR t.sha256 IS NULL)
UNION ALL
SELECT 'tree_list', t.sha256, 'its list has ' || (SELECT count(*) FROM tree_lists f WHERE f.tree_id = t.id) || ' files, and should have ' || t.files
FROM trees t WHERE t.sha256 IS NOT NULL AND t.files <> (SELECT count(*) FROM tree_lists f WHERE f.tree_id = t.id);
