CREATE TABLE IF NOT EXISTS fleet_meta (key text NOT NULL, value text NOT NULL, PRIMARY KEY (key));
CREATE TABLE IF NOT EXISTS fleet_hosts (
		db text NOT NULL, name text NOT NULL, version text NOT NULL, schema bigint NOT NULL, incarnation bigint NOT NULL,
		registered_at timestamptz NOT NULL, restored_by text, PRIMARY KEY (db));
CREATE TABLE IF NOT EXISTS fleet_marks (
		db text NOT NULL, mark_n bigint NOT NULL, mark_hash text NOT NULL, beats bigint NOT NULL, seen_at timestamptz NOT NULL, PRIMARY KEY (db));
CREATE TABLE IF NOT EXISTS fleet_agents (
		uid text NOT NULL, host text NOT NULL, owner text NOT NULL, agent text NOT NULL, v bigint NOT NULL, doc text NOT NULL, PRIMARY KEY (uid));
CREATE TABLE IF NOT EXISTS fleet_runs (
		uid text NOT NULL, agent_uid text NOT NULL, host text NOT NULL, owner text NOT NULL, agent text NOT NULL, run text NOT NULL, term bigint NOT NULL,
		as_of_n bigint NOT NULL, status text NOT NULL, updated_at text NOT NULL, seq bigint NOT NULL, v bigint NOT NULL, doc text NOT NULL, PRIMARY KEY (uid));
CREATE INDEX IF NOT EXISTS fleet_runs_of_host ON fleet_runs (host, owner, agent, run);
CREATE INDEX IF NOT EXISTS fleet_agents_of_host ON fleet_agents (host, owner, agent);
CREATE TABLE IF NOT EXISTS fleet_checkpoints (
		run_uid text NOT NULL, db text NOT NULL, n bigint NOT NULL, term bigint NOT NULL, id text NOT NULL, seq bigint NOT NULL, kind text NOT NULL,
		suspect bigint NOT NULL, sha text NOT NULL, size bigint NOT NULL, pieces text, body bytea, v bigint NOT NULL, doc text NOT NULL,
		PRIMARY KEY (run_uid, db, n));
CREATE TABLE IF NOT EXISTS fleet_segments (
		run_uid text NOT NULL, db text NOT NULL, id bigint NOT NULL, size bigint NOT NULL, data bytea NOT NULL, PRIMARY KEY (run_uid, db, id));
CREATE TABLE IF NOT EXISTS fleet_rows (
		run_uid text NOT NULL, kind text NOT NULL, key text NOT NULL, ord bigint NOT NULL, v bigint NOT NULL, doc text NOT NULL, PRIMARY KEY (run_uid, kind, key));
CREATE TABLE IF NOT EXISTS fleet_audit (
		db text NOT NULL, n bigint NOT NULL, at bigint NOT NULL, who text NOT NULL, action text NOT NULL, owner text NOT NULL, agent text NOT NULL,
		run text NOT NULL, outcome text NOT NULL, v bigint NOT NULL, doc text NOT NULL, texts text, hash text NOT NULL, PRIMARY KEY (db, n));
CREATE TABLE IF NOT EXISTS fleet_claims (
		run_uid text NOT NULL, term bigint NOT NULL, from_db text NOT NULL, to_db text NOT NULL, at timestamptz NOT NULL, how text NOT NULL, PRIMARY KEY (run_uid, term));
CREATE TABLE IF NOT EXISTS fleet_erasures (
		db text NOT NULL, n bigint NOT NULL, owner text NOT NULL, agent text NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (db, n));
-- what its daemons send
UPDATE fleet_marks SET beats = beats + 1, seen_at = clock_timestamp() WHERE db = $1;
INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how)
		SELECT r.uid, r.term + 1, r.host, $2::text, clock_timestamp(), 'restored' FROM fleet_runs r WHERE r.host = $1 ON CONFLICT (run_uid, term) DO NOTHING;
DELETE FROM fleet_rows WHERE kind = 'event' AND run_uid = $4 AND ord < $5 AND run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1);
DELETE FROM fleet_checkpoints WHERE run_uid = $4 AND db = $1 AND n = ANY($5::bigint[]) AND run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1);
DELETE FROM fleet_rows WHERE run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1);
UPDATE fleet_audit SET texts = NULL FROM unnest($2::bigint[], $3::text[], $4::text[]) AS u(n, owner, agent)
		WHERE fleet_audit.db = $1 AND fleet_audit.n < u.n AND fleet_audit.owner = u.owner AND fleet_audit.agent = u.agent AND fleet_audit.texts IS NOT NULL;
SELECT mark_n, mark_hash FROM fleet_marks WHERE db = $1;
SELECT key, value FROM fleet_meta;
SELECT coalesce(h.restored_by, '') FROM fleet_hosts h WHERE h.db = $1;
UPDATE fleet_agents SET host = $2 WHERE host = $1;
UPDATE fleet_hosts SET restored_by = $2 WHERE db = $1;
UPDATE fleet_runs SET host = $2, term = term + 1 WHERE host = $1;
SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1;
SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS u(owner, agent, run, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.run = u.run AND f.uid <> u.uid WHERE f.host = $1;
SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1;
DELETE FROM fleet_checkpoints WHERE run_uid = $4 AND NOT (db = $1 AND n = ANY($5::bigint[])) AND run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1);
DELETE FROM fleet_segments WHERE run_uid = $4 AND NOT (db = $1 AND id = ANY($5::bigint[])) AND run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1);
DELETE FROM fleet_rows WHERE kind = 'graph_write' AND run_uid = $4 AND NOT key = ANY($5::text[]) AND run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1);
SELECT h.db, h.name, h.version, coalesce(h.restored_by, ''), m.mark_n, m.seen_at, clock_timestamp(),
		(SELECT count(*) FROM fleet_runs r WHERE r.host = h.db) FROM fleet_hosts h JOIN fleet_marks m ON m.db = h.db ORDER BY h.name, h.db;
SELECT r.uid, r.host, coalesce(h.name, ''), r.owner, r.agent, r.run, r.status, r.term, r.seq, r.updated_at, r.as_of_n
		FROM fleet_runs r LEFT JOIN fleet_hosts h ON h.db = r.host
		WHERE ($1 = '' OR h.name = $1 OR r.host = $1) AND ($2 = '' OR r.owner = $2) AND ($3 = '' OR r.agent = $3) AND ($4 = '' OR r.status = $4) AND r.status <> ''
		ORDER BY r.updated_at DESC, r.uid LIMIT $5;
SELECT uid, owner, agent, doc FROM fleet_agents WHERE host = $1 ORDER BY owner, agent;
SELECT db, term, n, id, seq, kind, suspect, sha, size, pieces, body, doc FROM fleet_checkpoints WHERE run_uid = $1 ORDER BY term, seq;
SELECT kind, key, ord, doc FROM fleet_rows WHERE run_uid = $1 ORDER BY kind, ord, key;
SELECT uid, agent_uid, run, term, status, doc FROM fleet_runs WHERE host = $1 AND status <> '' ORDER BY updated_at, uid;
SELECT id, size, data FROM fleet_segments WHERE run_uid = $1 AND db = $2;
INSERT INTO fleet_runs (uid, agent_uid, host, owner, agent, run, term, as_of_n, status, updated_at, seq, v, doc)
		SELECT u.uid, u.agent_uid, $1, u.owner, u.agent, u.run, u.term, 0, '', '', 0, 2, ''
		FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[]) AS u(uid, agent_uid, owner, agent, run, term)
		ON CONFLICT (uid) DO NOTHING;
UPDATE fleet_checkpoints SET suspect = u.suspect, doc = u.doc
		FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::text[]) AS u(run_uid, n, suspect, doc)
		WHERE fleet_checkpoints.run_uid = u.run_uid AND fleet_checkpoints.db = $1 AND fleet_checkpoints.n = u.n AND u.run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1);
UPDATE fleet_marks SET mark_n = $4, mark_hash = $5, beats = beats + 1, seen_at = clock_timestamp()
		WHERE db = $1 AND mark_n = $2 AND mark_hash = $3;
SELECT 1 / count(*) FROM fleet_marks WHERE db = $1 AND mark_n = $2 AND mark_hash = $3;
INSERT INTO fleet_meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING;
INSERT INTO fleet_agents (uid, host, owner, agent, v, doc)
		SELECT u.uid, $1, u.owner, u.agent, 2, u.doc FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS u(uid, owner, agent, doc)
		ON CONFLICT (uid) DO UPDATE SET doc = excluded.doc, owner = excluded.owner, agent = excluded.agent WHERE fleet_agents.host = excluded.host;
INSERT INTO fleet_audit (db, n, at, who, action, owner, agent, run, outcome, v, doc, texts, hash)
		SELECT $1, u.n, u.at, u.who, u.action, u.owner, u.agent, u.run, u.outcome, 4, u.doc, u.texts, u.hash
		FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
		AS u(n, at, who, action, owner, agent, run, outcome, doc, texts, hash) ON CONFLICT (db, n) DO NOTHING;
INSERT INTO fleet_checkpoints (run_uid, db, n, term, id, seq, kind, suspect, sha, size, pieces, body, v, doc)
		SELECT u.run_uid, $1, u.n, u.term, u.id, u.seq, u.kind, u.suspect, u.sha, u.size, u.pieces, u.body, 2, u.doc
		FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[], $9::text[], $10::bigint[], $11::text[], $12::bigint[], $13::text[], $14::bytea[], $15::text[])
		AS u(run_uid, n, term, id, seq, kind, suspect, sha, size, pieces, body, doc)
		WHERE u.run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1) ON CONFLICT (run_uid, db, n) DO UPDATE SET suspect = excluded.suspect, doc = excluded.doc;
INSERT INTO fleet_erasures (db, n, owner, agent, at)
		SELECT $1, u.n, u.owner, u.agent, clock_timestamp() FROM unnest($2::bigint[], $3::text[], $4::text[]) AS u(n, owner, agent) ON CONFLICT (db, n) DO NOTHING;
INSERT INTO fleet_hosts (db, name, version, schema, incarnation, registered_at) VALUES ($1, $2, $3, $4, 1, clock_timestamp())
		ON CONFLICT (db) DO UPDATE SET name = excluded.name, version = excluded.version, schema = excluded.schema,
		incarnation = fleet_hosts.incarnation + 1, registered_at = clock_timestamp();
INSERT INTO fleet_marks (db, mark_n, mark_hash, beats, seen_at) VALUES ($1, 0, '', 0, clock_timestamp()) ON CONFLICT (db) DO NOTHING;
INSERT INTO fleet_meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value;
INSERT INTO fleet_rows (run_uid, kind, key, ord, v, doc)
		SELECT u.run_uid, u.kind, u.key, u.ord, 2, u.doc FROM unnest($4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[]) AS u(run_uid, kind, key, ord, doc)
		WHERE u.run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1) ON CONFLICT (run_uid, kind, key) DO UPDATE SET ord = excluded.ord, doc = excluded.doc;
INSERT INTO fleet_segments (run_uid, db, id, size, data)
		SELECT u.run_uid, $1, u.id, u.size, u.data FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::bytea[]) AS u(run_uid, id, size, data)
		WHERE u.run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1) ON CONFLICT (run_uid, db, id) DO NOTHING;
SELECT r.uid FROM fleet_runs r WHERE r.host = $1 AND r.agent_uid IN (SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1);
UPDATE fleet_runs SET as_of_n = u.as_of, status = u.status, updated_at = u.updated, seq = u.seq, doc = u.doc, agent_uid = u.agent_uid,
		owner = u.owner, agent = u.agent, run = u.run
		FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
		AS u(uid, term, as_of, status, updated, seq, doc, agent_uid, owner, agent, run)
		WHERE fleet_runs.uid = u.uid AND fleet_runs.host = $1 AND fleet_runs.term = u.term RETURNING fleet_runs.uid;
DELETE FROM fleet_checkpoints WHERE run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS u(owner, agent, run, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.run = u.run AND f.uid <> u.uid WHERE f.host = $1);
DELETE FROM fleet_segments WHERE run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS u(owner, agent, run, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.run = u.run AND f.uid <> u.uid WHERE f.host = $1);
DELETE FROM fleet_rows WHERE run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS u(owner, agent, run, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.run = u.run AND f.uid <> u.uid WHERE f.host = $1);
DELETE FROM fleet_runs WHERE uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS u(owner, agent, run, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.run = u.run AND f.uid <> u.uid WHERE f.host = $1);
DELETE FROM fleet_checkpoints WHERE run_uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host = $1 AND r.agent_uid IN (SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1));
DELETE FROM fleet_segments WHERE run_uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host = $1 AND r.agent_uid IN (SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1));
DELETE FROM fleet_rows WHERE run_uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host = $1 AND r.agent_uid IN (SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1));
DELETE FROM fleet_runs WHERE uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host = $1 AND r.agent_uid IN (SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1));
