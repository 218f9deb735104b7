package pg

// views are for people who read them with psql, as they read the audit_… views of a
// host with sqlite3. The views show no contents, so that a sealed engine shows the same
// columns.
var views = []string{
	`CREATE OR REPLACE VIEW fleet_audit_hosts AS
		SELECT h.db, h.name, h.version, h.registered_at, m.seen_at, m.mark_n, m.mark_hash, h.lease_until, h.drained
		FROM fleet_hosts h LEFT JOIN fleet_marks m ON m.db = h.db`,
	`CREATE OR REPLACE VIEW fleet_audit_agents AS
		SELECT a.uid, a.host AS db, h.name AS host, a.owner, a.principal, a.agent, a.takeover, a.key_id
		FROM fleet_agents a LEFT JOIN fleet_hosts h ON h.db = a.host`,
	`CREATE OR REPLACE VIEW fleet_audit_runs AS
		SELECT r.uid, r.host AS db, h.name AS host, r.owner, r.principal, r.agent, r.run, r.status, r.term, r.seq, r.updated_at,
		r.as_of_n, r.released, r.key_id
		FROM fleet_runs r LEFT JOIN fleet_hosts h ON h.db = r.host`,
	`CREATE OR REPLACE VIEW fleet_audit_checkpoints AS
		SELECT c.id, c.run_uid, c.db, r.owner, r.agent, r.run, c.seq, c.kind, c.suspect, c.size, c.sha AS sha256, c.term, c.n, c.key_id
		FROM fleet_checkpoints c JOIN fleet_runs r ON r.uid = c.run_uid`,
	`CREATE OR REPLACE VIEW fleet_audit_log AS
		SELECT a.db, h.name AS host, a.n, a.at AS at_ms, a.who, a.action, a.owner, a.agent, a.run, a.outcome, a.hash
		FROM fleet_audit a LEFT JOIN fleet_hosts h ON h.db = a.db`,
	`CREATE OR REPLACE VIEW fleet_audit_claims AS
		SELECT c.run_uid, r.owner, r.agent, r.run, c.term, c.from_db, f.name AS from_host, c.from_n, c.to_db, h.name AS to_host, c.at, c.how, c.claimed_by
		FROM fleet_claims c LEFT JOIN fleet_runs r ON r.uid = c.run_uid LEFT JOIN fleet_hosts f ON f.db = c.from_db
		LEFT JOIN fleet_hosts h ON h.db = c.to_db`,
	`CREATE OR REPLACE VIEW fleet_audit_erasures AS
		SELECT e.db, e.n, e.owner, e.agent, e.at, c.host AS confirmed_by, c.at AS confirmed_at
		FROM fleet_erasures e LEFT JOIN fleet_confirmations c ON c.db = e.db AND c.n = e.n`,
}
