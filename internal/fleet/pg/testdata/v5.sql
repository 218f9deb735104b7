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
ALTER TABLE fleet_claims ADD COLUMN IF NOT EXISTS from_n bigint;
ALTER TABLE fleet_claims ADD COLUMN IF NOT EXISTS claimed_by text;
ALTER TABLE fleet_claims ADD COLUMN IF NOT EXISTS decided text;
ALTER TABLE fleet_claims ADD COLUMN IF NOT EXISTS decided_by text;
ALTER TABLE fleet_hosts ADD COLUMN IF NOT EXISTS lease_until timestamptz;
ALTER TABLE fleet_runs ADD COLUMN IF NOT EXISTS released bigint;
ALTER TABLE fleet_agents ADD COLUMN IF NOT EXISTS takeover text;
ALTER TABLE fleet_hosts ADD COLUMN IF NOT EXISTS drained bigint;
ALTER TABLE fleet_claims ADD COLUMN IF NOT EXISTS from_hash text;
ALTER TABLE fleet_agents ADD COLUMN IF NOT EXISTS principal text;
ALTER TABLE fleet_runs ADD COLUMN IF NOT EXISTS principal text;
ALTER TABLE fleet_agents ADD COLUMN IF NOT EXISTS key_id text;
ALTER TABLE fleet_runs ADD COLUMN IF NOT EXISTS key_id text;
ALTER TABLE fleet_checkpoints ADD COLUMN IF NOT EXISTS key_id text;
ALTER TABLE fleet_segments ADD COLUMN IF NOT EXISTS key_id text;
ALTER TABLE fleet_rows ADD COLUMN IF NOT EXISTS key_id text;
ALTER TABLE fleet_audit ADD COLUMN IF NOT EXISTS key_id text;
CREATE TABLE IF NOT EXISTS fleet_erased (uid text NOT NULL, db text NOT NULL, n bigint NOT NULL, PRIMARY KEY (uid));
CREATE TABLE IF NOT EXISTS fleet_confirmations (
		db text NOT NULL, n bigint NOT NULL, host text NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (db, n, host));
CREATE TABLE IF NOT EXISTS fleet_rejoined (
		db text NOT NULL, run_uid text NOT NULL, from_n bigint NOT NULL, at timestamptz NOT NULL, decided text, decided_by text, PRIMARY KEY (db, run_uid));
CREATE INDEX IF NOT EXISTS fleet_erased_by ON fleet_erased (db, n);
ALTER TABLE fleet_rejoined ADD COLUMN IF NOT EXISTS former text;
CREATE INDEX IF NOT EXISTS fleet_checkpoints_by_id ON fleet_checkpoints (id);
CREATE TABLE IF NOT EXISTS fleet_heals (
		db text NOT NULL, noticed_at timestamptz NOT NULL, horizon timestamptz NOT NULL, until timestamptz NOT NULL, PRIMARY KEY (db));
-- what its daemons send
DELETE FROM fleet_agents WHERE uid IN (SELECT e.uid FROM fleet_erased e WHERE e.db = $1 AND e.n = $2);
DELETE FROM fleet_agents WHERE uid IN (SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1);
DELETE FROM fleet_checkpoints WHERE (run_uid, db, n) IN (
		SELECT u.run_uid, $1, u.n FROM unnest($4::text[], $5::bigint[]) AS u(run_uid, n) WHERE u.run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1));
DELETE FROM fleet_checkpoints WHERE run_uid = $4 AND NOT (db = $1 AND n = ANY($5::bigint[])) AND run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1);
DELETE FROM fleet_checkpoints WHERE run_uid IN (SELECT e.uid FROM fleet_erased e WHERE e.db = $1 AND e.n = $2);
DELETE FROM fleet_checkpoints WHERE run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS u(owner, agent, run, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.run = u.run AND f.uid <> u.uid WHERE f.host = $1 AND f.as_of_n > 0);
DELETE FROM fleet_checkpoints WHERE run_uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host = $1 AND r.agent_uid IN (SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1));
DELETE FROM fleet_rows WHERE kind = 'event' AND run_uid = $4 AND ord < $5 AND run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1);
DELETE FROM fleet_rows WHERE kind = 'graph_write' AND run_uid = $4 AND NOT key = ANY($5::text[]) AND run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1);
DELETE FROM fleet_rows WHERE run_uid IN (SELECT e.uid FROM fleet_erased e WHERE e.db = $1 AND e.n = $2);
DELETE FROM fleet_rows WHERE run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1);
DELETE FROM fleet_rows WHERE run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS u(owner, agent, run, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.run = u.run AND f.uid <> u.uid WHERE f.host = $1 AND f.as_of_n > 0);
DELETE FROM fleet_rows WHERE run_uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host = $1 AND r.agent_uid IN (SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1));
DELETE FROM fleet_runs WHERE uid IN (SELECT e.uid FROM fleet_erased e WHERE e.db = $1 AND e.n = $2);
DELETE FROM fleet_runs WHERE uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS u(owner, agent, run, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.run = u.run AND f.uid <> u.uid WHERE f.host = $1 AND f.as_of_n > 0);
DELETE FROM fleet_runs WHERE uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host = $1 AND r.agent_uid IN (SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1));
DELETE FROM fleet_segments WHERE run_uid = ANY($4::text[]) AND run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1)
		AND NOT (run_uid, db, id) IN (SELECT u.run_uid, $1, u.id FROM unnest($5::text[], $6::bigint[]) AS u(run_uid, id));
DELETE FROM fleet_segments WHERE run_uid IN (SELECT e.uid FROM fleet_erased e WHERE e.db = $1 AND e.n = $2);
DELETE FROM fleet_segments WHERE run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS u(owner, agent, run, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.run = u.run AND f.uid <> u.uid WHERE f.host = $1 AND f.as_of_n > 0);
DELETE FROM fleet_segments WHERE run_uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host = $1 AND r.agent_uid IN (SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1));
INSERT INTO fleet_agents (uid, host, owner, agent, v, doc, principal, takeover, key_id)
		SELECT u.uid, $1, u.owner, u.agent, 2, u.doc, u.principal, u.takeover, u.key_id
		FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
		AS u(uid, owner, agent, doc, principal, takeover, key_id)
		WHERE NOT u.uid IN (SELECT e.uid FROM fleet_erased e)
		ON CONFLICT (uid) DO UPDATE SET doc = excluded.doc, owner = excluded.owner, agent = excluded.agent, principal = excluded.principal,
		takeover = excluded.takeover, key_id = excluded.key_id
		WHERE fleet_agents.host = excluded.host;
INSERT INTO fleet_audit (db, n, at, who, action, owner, agent, run, outcome, v, doc, texts, hash, key_id)
		SELECT $1, u.n, u.at, u.who, u.action, u.owner, u.agent, u.run, u.outcome, 4, u.doc, u.texts, u.hash, u.key_id
		FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
		$11::text[], $12::text[], $13::text[])
		AS u(n, at, who, action, owner, agent, run, outcome, doc, texts, hash, key_id) ON CONFLICT (db, n) DO NOTHING;
INSERT INTO fleet_checkpoints (run_uid, db, n, term, id, seq, kind, suspect, sha, size, pieces, body, v, doc, key_id)
		SELECT u.run_uid, $1, u.n, u.term, u.id, u.seq, u.kind, u.suspect, u.sha, u.size, u.pieces, u.body, 2, u.doc, u.key_id
		FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[], $9::text[], $10::bigint[], $11::text[],
		$12::bigint[], $13::text[], $14::bytea[], $15::text[],
		$16::text[]) AS u(run_uid, n, term, id, seq, kind, suspect, sha, size, pieces, body, doc, key_id)
		WHERE u.run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1) ON CONFLICT (run_uid, db, n) DO UPDATE SET suspect = excluded.suspect, doc = excluded.doc,
		sha = excluded.sha, body = excluded.body, key_id = excluded.key_id;
INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how, from_n, claimed_by)
		SELECT r.uid, $4::bigint, r.host, $3::text, clock_timestamp(), 're-asserted', 0, 'daemon' FROM fleet_runs r
		WHERE r.uid = $1 AND r.term = $2 ON CONFLICT (run_uid, term) DO NOTHING;
INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how, from_n, claimed_by, from_hash)
		SELECT r.uid, r.term + 1, r.host, $4::text, clock_timestamp(), $5::text, m.mark_n, $6::text, m.mark_hash FROM fleet_runs r
		JOIN fleet_marks m ON m.db = r.host
		WHERE r.uid = $1 AND r.term = $2 AND r.host = $3 ON CONFLICT (run_uid, term) DO NOTHING;
INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how, from_n, from_hash)
		SELECT r.uid, r.term + 1, r.host, $2::text, clock_timestamp(), 'restored', m.mark_n, m.mark_hash FROM fleet_runs r
		JOIN fleet_marks m ON m.db = r.host
		WHERE r.host = $1 ON CONFLICT (run_uid, term) DO NOTHING;
INSERT INTO fleet_confirmations (db, n, host, at) VALUES ($1, $2, $3, clock_timestamp()) ON CONFLICT (db, n, host) DO NOTHING;
INSERT INTO fleet_erased (uid, db, n) SELECT a.uid, $1, $2::bigint FROM fleet_agents a
		WHERE a.principal = $3 AND a.agent = $4 AND a.host <> $1 ON CONFLICT (uid) DO NOTHING;
INSERT INTO fleet_erased (uid, db, n) SELECT r.uid, $1, $2::bigint FROM fleet_runs r JOIN fleet_erased e ON e.uid = r.agent_uid
		JOIN fleet_agents a ON a.uid = r.agent_uid WHERE e.db = $1 AND e.n = $2 AND a.host = r.host ON CONFLICT (uid) DO NOTHING;
INSERT INTO fleet_erased (uid, db, n) SELECT u.uid, $1, $2::bigint FROM unnest($3::text[]) AS u(uid)
		WHERE NOT u.uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host <> $1) ON CONFLICT (uid) DO NOTHING;
INSERT INTO fleet_erasures (db, n, owner, agent, at)
		SELECT $1, u.n, u.owner, u.agent, clock_timestamp() FROM unnest($2::bigint[], $3::text[], $4::text[]) AS u(n, owner, agent)
		ON CONFLICT (db, n) DO NOTHING;
INSERT INTO fleet_heals (db, noticed_at, horizon, until)
		VALUES ($1, clock_timestamp(), $2::timestamptz - $3::interval, clock_timestamp() + $4::interval)
		ON CONFLICT (db) DO UPDATE SET noticed_at = excluded.noticed_at, horizon = excluded.horizon, until = excluded.until;
INSERT INTO fleet_hosts (db, name, version, schema, incarnation, registered_at) VALUES ($1, $2, $3, $4, 1, clock_timestamp())
		ON CONFLICT (db) DO UPDATE SET name = excluded.name, version = excluded.version, schema = excluded.schema, registered_at = clock_timestamp();
INSERT INTO fleet_marks (db, mark_n, mark_hash, beats, seen_at) VALUES ($1, 0, '', 0, clock_timestamp()) ON CONFLICT (db) DO NOTHING;
INSERT INTO fleet_meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING;
INSERT INTO fleet_meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value;
INSERT INTO fleet_rejoined (db, run_uid, from_n, at) SELECT $1, r.uid, $3::bigint, clock_timestamp()
		FROM fleet_runs r WHERE r.host = $2 ON CONFLICT (db, run_uid) DO NOTHING;
INSERT INTO fleet_rejoined (db, run_uid, from_n, at) SELECT $3, r.uid, 0, clock_timestamp()
		FROM fleet_runs r JOIN unnest($1::text[], $2::bigint[]) AS u(uid, term) ON r.uid = u.uid
		WHERE r.term >= u.term AND r.host <> $3 ON CONFLICT (db, run_uid) DO NOTHING;
INSERT INTO fleet_rejoined (db, run_uid, from_n, at, former) VALUES ($1, '', $3, clock_timestamp(), $2)
		ON CONFLICT (db, run_uid) DO NOTHING;
INSERT INTO fleet_rows (run_uid, kind, key, ord, v, doc, key_id)
		SELECT u.run_uid, u.kind, u.key, u.ord, 2, u.doc, u.key_id
		FROM unnest($4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[]) AS u(run_uid, kind, key, ord, doc, key_id)
		WHERE u.run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1) ON CONFLICT (run_uid, kind, key) DO UPDATE SET ord = excluded.ord, doc = excluded.doc, key_id = excluded.key_id;
INSERT INTO fleet_runs (uid, agent_uid, host, owner, agent, run, term, as_of_n, status, updated_at, seq, v, doc)
		SELECT u.uid, u.agent_uid, $1, u.owner, u.agent, u.run, u.term, 0, '', '', 0, 2, ''
		FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[]) AS u(uid, agent_uid, owner, agent, run, term)
		WHERE NOT u.uid IN (SELECT e.uid FROM fleet_erased e) ON CONFLICT (uid) DO NOTHING;
INSERT INTO fleet_segments (run_uid, db, id, size, data, key_id)
		SELECT u.run_uid, $1, u.id, u.size, u.data, u.key_id
		FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::bytea[], $8::text[]) AS u(run_uid, id, size, data, key_id)
		WHERE u.run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1) ON CONFLICT (run_uid, db, id) DO UPDATE SET data = excluded.data, key_id = excluded.key_id
		WHERE coalesce(fleet_segments.key_id, '') <> coalesce(excluded.key_id, '');
SELECT 'checkpoints', c.run_uid, count(*) FROM fleet_checkpoints c
		WHERE NOT c.run_uid IN (SELECT r.uid FROM fleet_runs r) GROUP BY c.run_uid
		UNION ALL SELECT 'segments', c.run_uid, count(*) FROM fleet_segments c WHERE NOT c.run_uid IN (SELECT r.uid FROM fleet_runs r) GROUP BY c.run_uid
		UNION ALL SELECT 'rows', c.run_uid, count(*) FROM fleet_rows c WHERE NOT c.run_uid IN (SELECT r.uid FROM fleet_runs r) GROUP BY c.run_uid
		UNION ALL SELECT 'runs', c.agent_uid, count(*) FROM fleet_runs c WHERE NOT c.agent_uid IN (SELECT r.uid FROM fleet_agents r) GROUP BY c.agent_uid;
SELECT 1 / count(*) FROM fleet_claims WHERE run_uid = $1 AND term = $2 AND from_db = $3 AND decided = $4 AND decided_by = $5;
SELECT 1 / count(*) FROM fleet_hosts WHERE db = $1 AND ($2 IN ('forced', 'released') OR $2 = 'drained' AND drained = 1
		OR $2 = 'silent' AND lease_until IS NULL OR $2 = 'lease' AND lease_until + $3::interval < clock_timestamp())
		AND ($2 = 'forced' OR NOT EXISTS (SELECT 1 FROM fleet_heals x JOIN fleet_hosts o ON o.db <> x.db AND o.restored_by IS NULL AND o.registered_at < x.noticed_at
		JOIN fleet_marks f ON f.db = o.db AND f.seen_at > x.horizon
		WHERE x.until > clock_timestamp() AND NOT EXISTS (SELECT 1 FROM fleet_heals e WHERE e.db = o.db AND e.until > clock_timestamp())));
SELECT 1 / count(*) FROM fleet_hosts WHERE db = $1 AND incarnation = $2;
SELECT 1 / count(*) FROM fleet_marks WHERE db = $1 AND ($3 = 1 OR seen_at = $2);
SELECT 1 / count(*) FROM fleet_marks WHERE db = $1 AND mark_n = $2 AND mark_hash = $3;
SELECT 1 / count(*) FROM fleet_rejoined WHERE run_uid = $1 AND db = $2 AND decided = $3 AND decided_by = $4;
SELECT 1 / count(*) FROM fleet_runs WHERE uid = $1 AND host = $2 AND released = 1;
SELECT 1 / count(*) FROM fleet_runs WHERE uid = $1 AND host = $2 AND term = $3;
SELECT 1 / count(*) FROM fleet_runs WHERE uid = $1 AND term = $2 + 1 AND host = $3;
SELECT EXISTS (SELECT 1 FROM fleet_erasures x WHERE x.db = $1 AND x.n = $2);
SELECT a.hash FROM fleet_audit a WHERE a.db = $1 AND a.n = $2;
SELECT a.n, a.hash, a.texts FROM fleet_audit a WHERE a.db = $1 AND a.n > $2 ORDER BY a.n LIMIT $3;
SELECT a.uid FROM fleet_agents a WHERE a.host = $1 AND a.uid = ANY($2::text[]);
SELECT a.uid, a.owner, a.agent, a.doc FROM fleet_agents a WHERE a.host = $1 ORDER BY a.uid;
SELECT c.run_uid, c.term, c.from_db, c.to_db, coalesce(c.from_n, 0), coalesce(c.from_hash, ''), coalesce(a.hash, ''),
		coalesce(r.host, ''), coalesce(r.term, 0), c.how
		FROM fleet_claims c LEFT JOIN fleet_audit a ON a.db = c.from_db AND a.n = c.from_n LEFT JOIN fleet_runs r ON r.uid = c.run_uid
		ORDER BY c.run_uid, c.term;
SELECT c.run_uid, c.term, c.to_db, coalesce(h.name, ''), coalesce(c.from_n, 0), c.how, c.at, coalesce(c.decided, ''),
		coalesce(c.decided_by, '')
		FROM fleet_claims c JOIN fleet_runs r ON r.uid = c.run_uid LEFT JOIN fleet_hosts h ON h.db = c.to_db
		WHERE c.from_db = $1 AND r.host <> $1
		UNION ALL SELECT j.run_uid, r.term, r.host, coalesce(h.name, ''), j.from_n, 'rejoined', j.at, coalesce(j.decided, ''), coalesce(j.decided_by, '')
		FROM fleet_rejoined j JOIN fleet_runs r ON r.uid = j.run_uid LEFT JOIN fleet_hosts h ON h.db = r.host
		WHERE j.db = $1 AND r.host <> $1 ORDER BY 1, 2 DESC;
SELECT coalesce(h.restored_by, '') FROM fleet_hosts h WHERE h.db = $1;
SELECT count(*) FROM fleet_runs r;
SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum');
SELECT db, term, n, id, seq, kind, suspect, sha, size, pieces, body, doc, coalesce(key_id, '')
		FROM fleet_checkpoints WHERE run_uid = $1 ORDER BY term, seq;
SELECT e.uid FROM fleet_erased e WHERE e.db = $1 AND e.n = $2;
SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1;
SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1;
SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS u(owner, agent, run, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.run = u.run AND f.uid <> u.uid WHERE f.host = $1 AND f.as_of_n > 0;
SELECT h.db, h.name, h.version, coalesce(h.restored_by, ''), m.mark_n, m.seen_at, clock_timestamp(), h.lease_until,
		(SELECT count(*) FROM fleet_runs r WHERE r.host = h.db) FROM fleet_hosts h JOIN fleet_marks m ON m.db = h.db ORDER BY h.name, h.db;
SELECT id, size, data, coalesce(key_id, '') FROM fleet_segments WHERE run_uid = $1 AND db = $2;
SELECT key, value FROM fleet_meta;
SELECT kind, key, ord, doc, coalesce(key_id, '') FROM fleet_rows WHERE run_uid = $1 ORDER BY kind, ord, key;
SELECT m.beats, m.seen_at FROM fleet_marks m WHERE m.db = $1;
SELECT m.mark_n, m.mark_hash FROM fleet_marks m WHERE m.db = $1;
SELECT mark_n, mark_hash FROM fleet_marks WHERE db = $1;
SELECT o.db, o.name FROM fleet_hosts o WHERE o.db <> $1 AND o.restored_by IS NULL AND NOT EXISTS (SELECT 1 FROM fleet_rejoined j JOIN fleet_marks m ON m.db = j.former WHERE j.former = o.db AND m.seen_at <= j.at) ORDER BY o.name, o.db;
SELECT o.name, coalesce(c.host, '') FROM fleet_erasures x JOIN fleet_hosts o ON o.db <> x.db AND o.restored_by IS NULL
		LEFT JOIN fleet_confirmations c ON c.db = x.db AND c.n = x.n AND c.host = o.db
		WHERE x.db = $1 AND x.n = $2 AND (c.host = o.db OR NOT EXISTS (SELECT 1 FROM fleet_rejoined j JOIN fleet_marks m ON m.db = j.former WHERE j.former = o.db AND m.seen_at <= j.at) AND (x.db, x.n) IN (SELECT e.db, e.n FROM fleet_erased e))
		ORDER BY o.name, o.db;
SELECT o.name, x.until, clock_timestamp() FROM fleet_heals x JOIN fleet_hosts o ON o.db <> x.db AND o.restored_by IS NULL AND o.registered_at < x.noticed_at
		JOIN fleet_marks f ON f.db = o.db AND f.seen_at > x.horizon
		WHERE x.until > clock_timestamp() AND NOT EXISTS (SELECT 1 FROM fleet_heals e WHERE e.db = o.db AND e.until > clock_timestamp()) ORDER BY x.until DESC, o.name;
SELECT r.owner, r.agent, r.run FROM fleet_runs r WHERE r.host = $1 AND r.as_of_n > 0 AND NOT r.uid = ANY($2::text[]);
SELECT r.uid FROM fleet_runs r WHERE r.host = $1 AND r.agent_uid IN (SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1);
SELECT r.uid, r.agent_uid, r.owner, r.agent, r.run, r.term, r.status, r.doc, coalesce(r.key_id, '')
		FROM fleet_runs r WHERE r.host = $1 AND r.status <> '' ORDER BY r.uid;
SELECT r.uid, r.host, coalesce(h.name, ''), r.owner, coalesce(r.principal, ''), r.agent, r.run, r.status,
		c.db, c.n, c.id, c.seq, c.kind, c.suspect, c.sha, c.size, c.pieces, c.body, c.doc, coalesce(c.key_id, '')
		FROM fleet_checkpoints c JOIN fleet_runs r ON r.uid = c.run_uid LEFT JOIN fleet_hosts h ON h.db = r.host
		WHERE c.id = $6 AND ($1 = 1 OR r.principal = $2 OR r.principal IS NULL AND r.host = $3 AND r.owner = $4) AND ($5 = '' OR r.owner = $5) AND r.status <> '' ORDER BY c.term DESC, c.n DESC LIMIT 1;
SELECT r.uid, r.host, coalesce(h.name, ''), r.owner, coalesce(r.principal, ''), r.agent, r.run, r.status,
		x.kind, x.key, x.doc, coalesce(x.key_id, '')
		FROM fleet_rows x JOIN fleet_runs r ON r.uid = x.run_uid LEFT JOIN fleet_hosts h ON h.db = r.host
		WHERE x.kind = 'prompt' AND ($1 = 1 OR r.principal = $2 OR r.principal IS NULL AND r.host = $3 AND r.owner = $4) AND ($5 = '' OR r.owner = $5) AND r.status <> '' AND ($6 = '' OR h.name = $6 OR r.host = $6) AND ($7 = '' OR r.principal = $7)
		AND ($8 = '' OR r.agent = $8) AND ($9 = '' OR x.key < $9) ORDER BY x.key DESC LIMIT $10;
SELECT r.uid, r.host, coalesce(h.name, ''), r.owner, coalesce(r.principal, ''), r.agent, r.run, r.status, r.term,
		r.seq, r.updated_at, r.as_of_n
		FROM fleet_runs r LEFT JOIN fleet_hosts h ON h.db = r.host
		WHERE ($1 = '' OR h.name = $1 OR r.host = $1) AND ($2 = '' OR r.owner = $2) AND ($3 = '' OR r.principal = $3) AND ($4 = '' OR r.agent = $4)
		AND ($5 = '' OR r.status = $5) AND r.status <> '' AND ($6 = '' OR r.updated_at < $6 OR r.updated_at = $6 AND r.uid > $7)
		AND ($9 = 1 OR r.principal = $10 OR r.principal IS NULL AND r.host = $11 AND r.owner = $12)
		ORDER BY r.updated_at DESC, r.uid LIMIT $8;
SELECT r.uid, r.host, coalesce(h.name, ''), r.owner, r.agent, r.run, r.status, r.term, r.seq, r.updated_at, r.as_of_n, r.doc,
		coalesce(r.principal, ''), coalesce(r.key_id, ''), r.agent_uid, coalesce(a.doc, ''), m.seen_at, clock_timestamp(),
		h.lease_until, coalesce(h.drained, 0), coalesce(r.released, 0), coalesce(a.takeover, '')
		FROM fleet_runs r JOIN fleet_marks m ON m.db = r.host LEFT JOIN fleet_hosts h ON h.db = r.host LEFT JOIN fleet_agents a ON a.uid = r.agent_uid
		WHERE r.agent = $1 AND ($2 = '' OR r.run = $2) AND ($3 = '' OR r.owner = $3) AND ($4 = '' OR h.name = $4 OR r.host = $4) AND r.status <> ''
		ORDER BY r.updated_at DESC, r.uid LIMIT 20;
SELECT r.uid, r.term, r.host, u.term FROM fleet_runs r JOIN unnest($1::text[], $2::bigint[]) AS u(uid, term) ON r.uid = u.uid
		WHERE r.term < u.term ORDER BY r.uid;
SELECT u.uid FROM unnest($1::text[]) AS u(uid) WHERE NOT u.uid IN (SELECT r.uid FROM fleet_runs r)
		AND NOT u.uid IN (SELECT e.uid FROM fleet_erased e);
SELECT uid, agent_uid, run, term, status, doc, coalesce(key_id, '') FROM fleet_runs
		WHERE host = $1 AND status <> '' ORDER BY updated_at, uid;
SELECT uid, owner, agent, coalesce(principal, ''), doc FROM fleet_agents
		WHERE host = $1 OR uid IN (SELECT r.agent_uid FROM fleet_runs r WHERE r.host = $1) ORDER BY owner, agent;
SELECT x.db, x.n, x.owner, x.agent, x.at, coalesce(h.name, ''), o.db, o.name
		FROM fleet_erasures x LEFT JOIN fleet_hosts h ON h.db = x.db JOIN fleet_hosts o ON o.db <> x.db AND o.restored_by IS NULL
		LEFT JOIN fleet_confirmations c ON c.db = x.db AND c.n = x.n AND c.host = o.db
		WHERE c.host IS NULL AND NOT EXISTS (SELECT 1 FROM fleet_rejoined j JOIN fleet_marks m ON m.db = j.former WHERE j.former = o.db AND m.seen_at <= j.at) AND (x.db, x.n) IN (SELECT e.db, e.n FROM fleet_erased e) ORDER BY x.at, x.db, x.n, o.name, o.db;
UPDATE fleet_agents SET host = $2 WHERE host = $1;
UPDATE fleet_agents SET principal = u.principal FROM unnest($2::text[], $3::text[]) AS u(uid, principal)
		WHERE fleet_agents.uid = u.uid AND fleet_agents.host = $1 AND coalesce(fleet_agents.principal, '') <> u.principal;
UPDATE fleet_audit SET texts = NULL FROM fleet_agents a JOIN fleet_erased e ON e.uid = a.uid
		WHERE e.db = $1 AND e.n = $2 AND a.host <> $1 AND fleet_audit.db = a.host AND fleet_audit.owner = a.owner AND fleet_audit.agent = a.agent
		AND fleet_audit.texts IS NOT NULL;
UPDATE fleet_audit SET texts = NULL FROM unnest($2::bigint[], $3::text[], $4::text[], $5::bigint[]) AS u(n, owner, agent, after)
		WHERE fleet_audit.db = $1 AND fleet_audit.n < u.n AND fleet_audit.n > u.after AND fleet_audit.owner = u.owner AND fleet_audit.agent = u.agent AND fleet_audit.texts IS NOT NULL;
UPDATE fleet_checkpoints SET suspect = u.suspect, doc = u.doc
		FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::text[]) AS u(run_uid, n, suspect, doc)
		WHERE fleet_checkpoints.run_uid = u.run_uid AND fleet_checkpoints.db = $1 AND fleet_checkpoints.n = u.n AND u.run_uid IN (SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1);
UPDATE fleet_claims SET decided = $4, decided_by = $5 WHERE run_uid = $1 AND term = $2 AND from_db = $3
		AND coalesce(decided, '') = '';
UPDATE fleet_hosts SET incarnation = incarnation + 1, lease_until = clock_timestamp() + $2::interval, drained = NULL
		WHERE db = $1 AND ($3 = 1 OR lease_until IS NULL OR lease_until < clock_timestamp() OR incarnation <= $4) RETURNING incarnation;
UPDATE fleet_hosts SET incarnation = incarnation WHERE db = $1;
UPDATE fleet_hosts SET lease_until = clock_timestamp() + $3::interval WHERE db = $1 AND incarnation = $2;
UPDATE fleet_hosts SET lease_until = clock_timestamp(), drained = 1 WHERE db = $1 AND incarnation = $2;
UPDATE fleet_hosts SET restored_by = $2 WHERE db = $1;
UPDATE fleet_marks SET beats = beats + 1 WHERE db = $1 AND ($3 = 1 OR seen_at = $2);
UPDATE fleet_marks SET beats = beats + 1, seen_at = clock_timestamp() WHERE db = $1;
UPDATE fleet_marks SET beats = beats + 1, seen_at = clock_timestamp() WHERE db = $1 RETURNING beats;
UPDATE fleet_marks SET mark_n = $4, mark_hash = $5, beats = beats + 1, seen_at = clock_timestamp()
		WHERE db = $1 AND mark_n = $2 AND mark_hash = $3 RETURNING beats;
UPDATE fleet_rejoined SET decided = $3, decided_by = $4 WHERE run_uid = $1 AND db = $2 AND coalesce(decided, '') = '';
UPDATE fleet_runs SET as_of_n = u.as_of, status = u.status, updated_at = u.updated, seq = u.seq, doc = u.doc, agent_uid = u.agent_uid,
		owner = u.owner, agent = u.agent, run = u.run, principal = u.principal, key_id = u.key_id, released = u.released
		FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[], $10::text[],
		$11::text[], $12::text[], $13::text[],
		$14::text[], $15::bigint[]) AS u(uid, term, as_of, status, updated, seq, doc, agent_uid, owner, agent, run, principal, key_id, released)
		WHERE fleet_runs.uid = u.uid AND fleet_runs.host = $1 AND fleet_runs.term = u.term RETURNING fleet_runs.uid;
UPDATE fleet_runs SET host = $2, term = term + 1 WHERE host = $1;
UPDATE fleet_runs SET host = $3, term = $4, released = NULL, as_of_n = 0 WHERE uid = $1 AND term = $2;
UPDATE fleet_runs SET host = $4, term = term + 1, released = NULL, as_of_n = 0 WHERE uid = $1 AND term = $2 AND host = $3
		AND ($5 <> 'released' OR released = 1);
UPDATE fleet_runs SET principal = u.principal FROM unnest($2::text[], $3::text[]) AS u(uid, principal)
		WHERE fleet_runs.agent_uid = u.uid AND fleet_runs.host = $1 AND coalesce(fleet_runs.principal, '') <> u.principal;
UPDATE fleet_runs SET released = 1 WHERE uid = $1 AND host = $2;
