package pg

// SchemaVersion is the version of the tables below. minReader is the oldest version whose
// programs may use them.
const (
	SchemaVersion = 1
	minReader     = 1
)

// schema makes the tables. Each statement can be repeated.
var schema = []string{
	`CREATE TABLE IF NOT EXISTS fleet_meta (key text NOT NULL, value text NOT NULL, PRIMARY KEY (key))`,
	// lease_until is until when a host may act for its runs, by the engine's clock; NULL: the host holds no lease. drained is 1 if
	// the host has released all of its runs before maintenance. went_back is when the host found that the engine went back; NULL
	// after a person has accepted that.
	`CREATE TABLE IF NOT EXISTS fleet_hosts (
		db text NOT NULL, name text NOT NULL, version text NOT NULL, schema bigint NOT NULL, incarnation bigint NOT NULL,
		registered_at timestamptz NOT NULL, lease_until timestamptz, drained bigint, went_back timestamptz, PRIMARY KEY (db))`,
	// forgotten is when a person said that the host is gone for good; NULL for a host that registered since.
	`CREATE TABLE IF NOT EXISTS fleet_marks (
		db text NOT NULL, mark_n bigint NOT NULL, mark_hash text NOT NULL, beats bigint NOT NULL, seen_at timestamptz NOT NULL,
		forgotten timestamptz, PRIMARY KEY (db))`,
	// takeover is what the agent's policy says about claims: auto, manual or never. principal owns the agent. key_id is the key that
	// the contents of the row are sealed with; NULL: in the clear.
	`CREATE TABLE IF NOT EXISTS fleet_agents (
		uid text NOT NULL, host text NOT NULL, owner text NOT NULL, agent text NOT NULL, v bigint NOT NULL, doc text NOT NULL, takeover text,
		principal text, key_id text,
		PRIMARY KEY (uid))`,
	// released is 1 if the owner has let go of the run, so that another host may claim the run at once. named is 1 if no other run
	// of the principal may have the name.
	`CREATE TABLE IF NOT EXISTS fleet_runs (
		uid text NOT NULL, agent_uid text NOT NULL, host text NOT NULL, owner text NOT NULL, agent text NOT NULL, run text NOT NULL, term bigint NOT NULL,
		as_of_n bigint NOT NULL, status text NOT NULL, updated_at text NOT NULL, seq bigint NOT NULL, v bigint NOT NULL, doc text NOT NULL,
		released bigint, principal text, key_id text, named bigint,
		PRIMARY KEY (uid))`,
	// A name has one run in the whole fleet, from the transaction that ships the run first.
	`CREATE UNIQUE INDEX IF NOT EXISTS fleet_runs_names ON fleet_runs (principal, agent, run) WHERE named = 1`,
	`CREATE INDEX IF NOT EXISTS fleet_runs_of_host ON fleet_runs (host, owner, agent, run)`,
	`CREATE INDEX IF NOT EXISTS fleet_agents_of_host ON fleet_agents (host, owner, agent)`,
	`CREATE TABLE IF NOT EXISTS fleet_checkpoints (
		run_uid text NOT NULL, db text NOT NULL, n bigint NOT NULL, term bigint NOT NULL, id text NOT NULL, seq bigint NOT NULL, kind text NOT NULL,
		suspect bigint NOT NULL, sha text NOT NULL, size bigint NOT NULL, pieces text, body bytea, v bigint NOT NULL, doc text NOT NULL, key_id text,
		PRIMARY KEY (run_uid, db, n))`,
	`CREATE TABLE IF NOT EXISTS fleet_segments (
		run_uid text NOT NULL, db text NOT NULL, id bigint NOT NULL, size bigint NOT NULL, data bytea NOT NULL, key_id text,
		PRIMARY KEY (run_uid, db, id))`,
	`CREATE TABLE IF NOT EXISTS fleet_rows (
		run_uid text NOT NULL, kind text NOT NULL, key text NOT NULL, ord bigint NOT NULL, v bigint NOT NULL, doc text NOT NULL, key_id text,
		PRIMARY KEY (run_uid, kind, key))`,
	`CREATE TABLE IF NOT EXISTS fleet_audit (
		db text NOT NULL, n bigint NOT NULL, at bigint NOT NULL, who text NOT NULL, action text NOT NULL, owner text NOT NULL, agent text NOT NULL,
		run text NOT NULL, outcome text NOT NULL, v bigint NOT NULL, doc text NOT NULL, texts text, hash text NOT NULL, key_id text, PRIMARY KEY (db, n))`,
	// from_n is the row of the former owner's audit log after which nothing was shipped when the run was claimed, from_hash its
	// hash, and claimed_by who claimed the run.
	`CREATE TABLE IF NOT EXISTS fleet_claims (
		run_uid text NOT NULL, term bigint NOT NULL, from_db text NOT NULL, to_db text NOT NULL, at timestamptz NOT NULL, how text NOT NULL, from_n bigint,
		claimed_by text, from_hash text,
		PRIMARY KEY (run_uid, term, from_db))`,
	`CREATE TABLE IF NOT EXISTS fleet_erasures (
		db text NOT NULL, n bigint NOT NULL, owner text NOT NULL, agent text NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (db, n))`,
	`CREATE TABLE IF NOT EXISTS fleet_erased (uid text NOT NULL, db text NOT NULL, n bigint NOT NULL, PRIMARY KEY (uid))`,
	`CREATE TABLE IF NOT EXISTS fleet_confirmations (
		db text NOT NULL, n bigint NOT NULL, host text NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (db, n, host))`,
	`CREATE INDEX IF NOT EXISTS fleet_erased_by ON fleet_erased (db, n)`,
	`CREATE INDEX IF NOT EXISTS fleet_checkpoints_by_id ON fleet_checkpoints (id)`,
	`CREATE INDEX IF NOT EXISTS fleet_runs_of_principal ON fleet_runs (principal)`,
}

// tables are the tables that a daemon reads and writes.
var tables = []string{
	"fleet_meta", "fleet_hosts", "fleet_marks", "fleet_agents", "fleet_runs", "fleet_checkpoints", "fleet_segments", "fleet_rows", "fleet_audit",
	"fleet_claims", "fleet_erasures", "fleet_erased", "fleet_confirmations",
}
