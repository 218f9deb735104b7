package pg

// SchemaVersion is the version of the tables below. minReader is the oldest version whose
// programs may use them.
const (
	SchemaVersion = 6
	minReader     = 1
)

// schema makes the tables. Each statement can be repeated.
var schema = []string{
	`CREATE TABLE IF NOT EXISTS fleet_meta (key text NOT NULL, value text NOT NULL, PRIMARY KEY (key))`,
	`CREATE TABLE IF NOT EXISTS fleet_hosts (
		db text NOT NULL, name text NOT NULL, version text NOT NULL, schema bigint NOT NULL, incarnation bigint NOT NULL,
		registered_at timestamptz NOT NULL, restored_by text, PRIMARY KEY (db))`,
	`CREATE TABLE IF NOT EXISTS fleet_marks (
		db text NOT NULL, mark_n bigint NOT NULL, mark_hash text NOT NULL, beats bigint NOT NULL, seen_at timestamptz NOT NULL, PRIMARY KEY (db))`,
	`CREATE TABLE IF NOT EXISTS fleet_agents (
		uid text NOT NULL, host text NOT NULL, owner text NOT NULL, agent text NOT NULL, v bigint NOT NULL, doc text NOT NULL, PRIMARY KEY (uid))`,
	`CREATE TABLE IF NOT EXISTS fleet_runs (
		uid text NOT NULL, agent_uid text NOT NULL, host text NOT NULL, owner text NOT NULL, agent text NOT NULL, run text NOT NULL, term bigint NOT NULL,
		as_of_n bigint NOT NULL, status text NOT NULL, updated_at text NOT NULL, seq bigint NOT NULL, v bigint NOT NULL, doc text NOT NULL, PRIMARY KEY (uid))`,
	`CREATE INDEX IF NOT EXISTS fleet_runs_of_host ON fleet_runs (host, owner, agent, run)`,
	`CREATE INDEX IF NOT EXISTS fleet_agents_of_host ON fleet_agents (host, owner, agent)`,
	`CREATE TABLE IF NOT EXISTS fleet_checkpoints (
		run_uid text NOT NULL, db text NOT NULL, n bigint NOT NULL, term bigint NOT NULL, id text NOT NULL, seq bigint NOT NULL, kind text NOT NULL,
		suspect bigint NOT NULL, sha text NOT NULL, size bigint NOT NULL, pieces text, body bytea, v bigint NOT NULL, doc text NOT NULL,
		PRIMARY KEY (run_uid, db, n))`,
	`CREATE TABLE IF NOT EXISTS fleet_segments (
		run_uid text NOT NULL, db text NOT NULL, id bigint NOT NULL, size bigint NOT NULL, data bytea NOT NULL, PRIMARY KEY (run_uid, db, id))`,
	`CREATE TABLE IF NOT EXISTS fleet_rows (
		run_uid text NOT NULL, kind text NOT NULL, key text NOT NULL, ord bigint NOT NULL, v bigint NOT NULL, doc text NOT NULL, PRIMARY KEY (run_uid, kind, key))`,
	`CREATE TABLE IF NOT EXISTS fleet_audit (
		db text NOT NULL, n bigint NOT NULL, at bigint NOT NULL, who text NOT NULL, action text NOT NULL, owner text NOT NULL, agent text NOT NULL,
		run text NOT NULL, outcome text NOT NULL, v bigint NOT NULL, doc text NOT NULL, texts text, hash text NOT NULL, PRIMARY KEY (db, n))`,
	`CREATE TABLE IF NOT EXISTS fleet_claims (
		run_uid text NOT NULL, term bigint NOT NULL, from_db text NOT NULL, to_db text NOT NULL, at timestamptz NOT NULL, how text NOT NULL, PRIMARY KEY (run_uid, term))`,
	`CREATE TABLE IF NOT EXISTS fleet_erasures (
		db text NOT NULL, n bigint NOT NULL, owner text NOT NULL, agent text NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (db, n))`,
	// Version 2: the row of the former owner's audit log after which nothing was shipped
	// when a run was claimed, who claimed it, and what was decided about the strand.
	`ALTER TABLE fleet_claims ADD COLUMN IF NOT EXISTS from_n bigint`,
	`ALTER TABLE fleet_claims ADD COLUMN IF NOT EXISTS claimed_by text`,
	`ALTER TABLE fleet_claims ADD COLUMN IF NOT EXISTS decided text`,
	`ALTER TABLE fleet_claims ADD COLUMN IF NOT EXISTS decided_by text`,
	// Version 3: until when a host may act for its runs, by the engine's clock. NULL means
	// that the host holds no lease.
	`ALTER TABLE fleet_hosts ADD COLUMN IF NOT EXISTS lease_until timestamptz`,
	// Version 3: 1 if the owner has let go of a run, so that another host may claim it at
	// once.
	`ALTER TABLE fleet_runs ADD COLUMN IF NOT EXISTS released bigint`,
	// Version 3: what the agent's policy says about claims: auto, manual or never.
	`ALTER TABLE fleet_agents ADD COLUMN IF NOT EXISTS takeover text`,
	// Version 3: 1 if the host has released all of its runs before maintenance.
	`ALTER TABLE fleet_hosts ADD COLUMN IF NOT EXISTS drained bigint`,
	// Version 3: the hash of row from_n, by which a claim is checked against the chain of
	// the former owner.
	`ALTER TABLE fleet_claims ADD COLUMN IF NOT EXISTS from_hash text`,
	// Version 3: the principal that owns an agent. NULL means the user of its own host only.
	`ALTER TABLE fleet_agents ADD COLUMN IF NOT EXISTS principal text`,
	`ALTER TABLE fleet_runs ADD COLUMN IF NOT EXISTS principal text`,
	// Version 3: the key that a row's contents are sealed with. NULL means in the clear.
	`ALTER TABLE fleet_agents ADD COLUMN IF NOT EXISTS key_id text`,
	`ALTER TABLE fleet_runs ADD COLUMN IF NOT EXISTS key_id text`,
	`ALTER TABLE fleet_checkpoints ADD COLUMN IF NOT EXISTS key_id text`,
	`ALTER TABLE fleet_segments ADD COLUMN IF NOT EXISTS key_id text`,
	`ALTER TABLE fleet_rows ADD COLUMN IF NOT EXISTS key_id text`,
	`ALTER TABLE fleet_audit ADD COLUMN IF NOT EXISTS key_id text`,
	// Version 4: the uids of agents and runs that an erasure has removed, which no host may
	// ship again; the hosts that have erased their own copies; and the runs of which a
	// database that joined again under another id has copies.
	`CREATE TABLE IF NOT EXISTS fleet_erased (uid text NOT NULL, db text NOT NULL, n bigint NOT NULL, PRIMARY KEY (uid))`,
	`CREATE TABLE IF NOT EXISTS fleet_confirmations (
		db text NOT NULL, n bigint NOT NULL, host text NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (db, n, host))`,
	`CREATE TABLE IF NOT EXISTS fleet_rejoined (
		db text NOT NULL, run_uid text NOT NULL, from_n bigint NOT NULL, at timestamptz NOT NULL, decided text, decided_by text, PRIMARY KEY (db, run_uid))`,
	`CREATE INDEX IF NOT EXISTS fleet_erased_by ON fleet_erased (db, n)`,
	// Version 5: the former id of a database that joined again, and checkpoints by their ids.
	`ALTER TABLE fleet_rejoined ADD COLUMN IF NOT EXISTS former text`,
	`CREATE INDEX IF NOT EXISTS fleet_checkpoints_by_id ON fleet_checkpoints (id)`,
	// Version 5: the hosts that have noticed that the engine went back, and when; how lately
	// a host must have been seen so that claims wait for it; and until when they wait.
	`CREATE TABLE IF NOT EXISTS fleet_heals (
		db text NOT NULL, noticed_at timestamptz NOT NULL, horizon timestamptz NOT NULL, until timestamptz NOT NULL, PRIMARY KEY (db))`,
	// Version 6: the runs of a principal, whose bytes are counted for the quota.
	`CREATE INDEX IF NOT EXISTS fleet_runs_of_principal ON fleet_runs (principal)`,
	// Version 6: the janitor, and what it has cleaned: of which run of which host, whether
	// the janitor's audit log has it, and whether that host has shipped it again since.
	`CREATE TABLE IF NOT EXISTS fleet_janitor (key text NOT NULL, db text NOT NULL, until timestamptz NOT NULL, PRIMARY KEY (key))`,
	`CREATE TABLE IF NOT EXISTS fleet_cleanings (
		id text NOT NULL, run_uid text NOT NULL, host text NOT NULL, by_db text NOT NULL, at timestamptz NOT NULL, owner text NOT NULL,
		agent text NOT NULL, run text NOT NULL, dropped bigint NOT NULL, doc text NOT NULL, why text NOT NULL, noted bigint, answered bigint,
		PRIMARY KEY (id))`,
	`CREATE INDEX IF NOT EXISTS fleet_cleanings_of_host ON fleet_cleanings (host, run_uid)`,
	// Version 6: an index of the prompts, which are few among the rows of runs.
	`CREATE INDEX IF NOT EXISTS fleet_rows_prompts ON fleet_rows (key) WHERE kind = 'prompt'`,
	// Version 6: how often the janitor has cleaned runs of a host, and when a daemon
	// registered that asks for this with each batch.
	`ALTER TABLE fleet_marks ADD COLUMN IF NOT EXISTS cleaned bigint`,
	`ALTER TABLE fleet_hosts ADD COLUMN IF NOT EXISTS asks_at timestamptz`,
}

// tables are the tables that a daemon reads and writes.
var tables = []string{
	"fleet_meta", "fleet_hosts", "fleet_marks", "fleet_agents", "fleet_runs", "fleet_checkpoints", "fleet_segments", "fleet_rows", "fleet_audit",
	"fleet_claims", "fleet_erasures", "fleet_erased", "fleet_confirmations", "fleet_rejoined", "fleet_heals", "fleet_janitor",
	"fleet_cleanings",
}
