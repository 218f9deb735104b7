package pg

// The statements of a batch, in their order. Rows of a run are written only if this host still owns the
// run under its term: the subquery held checks that.
const (
	moveMark = `UPDATE fleet_marks SET mark_n = $4, mark_hash = $5, beats = beats + 1, seen_at = clock_timestamp()
		WHERE db = $1 AND mark_n = $2 AND mark_hash = $3 AND forgotten IS NULL RETURNING beats`
	// needMark undoes the transaction if the mark was not where this host left it.
	needMark = `SELECT 1 / count(*) FROM fleet_marks WHERE db = $1 AND mark_n = $2 AND mark_hash = $3`

	// goneRuns are runs of this host whose names now mean other runs, or nothing. It leaves out runs that
	// this host was given but has not shipped yet.
	goneRuns = `SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS u(owner, agent, run, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.run = u.run AND f.uid <> u.uid WHERE f.host = $1 AND f.as_of_n > 0`
	// goneAgents are the agents of this host whose names now mean other agents, or nothing.
	goneAgents = `SELECT f.uid FROM fleet_agents f JOIN unnest($2::text[], $3::text[], $4::text[]) AS u(owner, agent, uid)
		ON f.owner = u.owner AND f.agent = u.agent AND f.uid <> u.uid WHERE f.host = $1`
	// dropGoneAgents leaves those to which runs belong that other hosts own, or that this host was given
	// but has not shipped yet. runsOfGoneAgents leaves out such runs too.
	dropGoneAgents = `DELETE FROM fleet_agents WHERE uid IN (` + goneAgents + `)
		AND NOT uid IN (SELECT r.agent_uid FROM fleet_runs r WHERE r.host <> $1 OR r.as_of_n = 0)`
	runsOfGoneAgents = `SELECT r.uid FROM fleet_runs r WHERE r.host = $1 AND r.as_of_n > 0 AND r.agent_uid IN (` + goneAgents + `)`

	putAgents = `INSERT INTO fleet_agents (uid, host, owner, agent, v, doc, principal, takeover, key_id)
		SELECT u.uid, $1, u.owner, u.agent, 2, u.doc, u.principal, u.takeover, u.key_id
		FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
		AS u(uid, owner, agent, doc, principal, takeover, key_id)
		WHERE NOT u.uid IN (SELECT e.uid FROM fleet_erased e)
		ON CONFLICT (uid) DO UPDATE SET doc = excluded.doc, owner = excluded.owner, agent = excluded.agent, principal = excluded.principal,
		takeover = excluded.takeover, key_id = excluded.key_id
		WHERE fleet_agents.host = excluded.host`
	// makeRuns leaves out runs that were erased, runs whose names other runs have, and runs that another host
	// was given: if that host has removed such a run since, the run does not come back to this one.
	makeRuns = `INSERT INTO fleet_runs (uid, agent_uid, host, owner, agent, run, term, principal, named, as_of_n, status, updated_at, seq, v, doc)
		SELECT u.uid, u.agent_uid, $1, u.owner, u.agent, u.run, u.term, u.principal, u.named, 0, '', '', 0, 2, ''
		FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::bigint[])
		AS u(uid, agent_uid, owner, agent, run, term, principal, named)
		WHERE NOT u.uid IN (SELECT e.uid FROM fleet_erased e)
		AND NOT EXISTS (SELECT 1 FROM fleet_claims c WHERE c.run_uid = u.uid AND c.to_db <> $1 AND c.term >= u.term) ON CONFLICT DO NOTHING`
	setRuns = `UPDATE fleet_runs SET as_of_n = u.as_of, status = u.status, updated_at = u.updated, seq = u.seq, doc = u.doc, agent_uid = u.agent_uid,
		owner = u.owner, agent = u.agent, run = u.run, principal = u.principal, key_id = u.key_id, released = coalesce(u.released, fleet_runs.released),
		named = u.named
		FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[], $10::text[],
		$11::text[], $12::text[], $13::text[],
		$14::text[], $15::bigint[], $16::bigint[])
		AS u(uid, term, as_of, status, updated, seq, doc, agent_uid, owner, agent, run, principal, key_id, released, named)
		WHERE fleet_runs.uid = u.uid AND fleet_runs.host = $1 AND fleet_runs.term = u.term
		AND (u.named = 0 OR NOT EXISTS (SELECT 1 FROM fleet_runs o WHERE o.named = 1 AND o.principal = u.principal AND o.agent = u.agent
			AND o.run = u.run AND o.uid <> u.uid)) RETURNING fleet_runs.uid`

	held = `SELECT f.uid FROM fleet_runs f JOIN unnest($2::text[], $3::bigint[]) AS h(uid, term) ON f.uid = h.uid AND f.term = h.term WHERE f.host = $1`

	dropRows   = `DELETE FROM fleet_rows WHERE run_uid IN (` + held + `)`
	dropEvents = `DELETE FROM fleet_rows WHERE kind = 'event' AND run_uid = $4 AND ord < $5 AND run_uid IN (` + held + `)`
	// keepWrites keeps only those writes of LangGraph's tasks that still exist.
	keepWrites = `DELETE FROM fleet_rows WHERE kind = 'graph_write' AND run_uid = $4 AND NOT key = ANY($5::text[]) AND run_uid IN (` + held + `)`
	// keepOnly keeps only the checkpoints that exist. dropGone removes those that were removed.
	keepOnly = `DELETE FROM fleet_checkpoints WHERE run_uid = $4 AND NOT (db = $1 AND n = ANY($5::bigint[])) AND run_uid IN (` + held + `)`
	dropGone = `DELETE FROM fleet_checkpoints WHERE (run_uid, db, n) IN (
		SELECT u.run_uid, $1, u.n FROM unnest($4::text[], $5::bigint[]) AS u(run_uid, n) WHERE u.run_uid IN (` + held + `))`
	keepSegments = `DELETE FROM fleet_segments WHERE run_uid = ANY($4::text[]) AND run_uid IN (` + held + `)
		AND NOT (run_uid, db, id) IN (SELECT u.run_uid, $1, u.id FROM unnest($5::text[], $6::bigint[]) AS u(run_uid, id))`

	// A segment never changes, but it can be sealed with another key when it is sent again.
	putSegments = `INSERT INTO fleet_segments (run_uid, db, id, size, data, key_id)
		SELECT u.run_uid, $1, u.id, u.size, u.data, u.key_id
		FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::bytea[], $8::text[]) AS u(run_uid, id, size, data, key_id)
		WHERE u.run_uid IN (` + held + `) ON CONFLICT (run_uid, db, id) DO UPDATE SET data = excluded.data, key_id = excluded.key_id
		WHERE coalesce(fleet_segments.key_id, '') <> coalesce(excluded.key_id, '')`
	putCheckpoints = `INSERT INTO fleet_checkpoints (run_uid, db, n, term, id, seq, kind, suspect, sha, size, pieces, body, v, doc, key_id)
		SELECT u.run_uid, $1, u.n, u.term, u.id, u.seq, u.kind, u.suspect, u.sha, u.size, u.pieces, u.body, 2, u.doc, u.key_id
		FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[], $9::text[], $10::bigint[], $11::text[],
		$12::bigint[], $13::text[], $14::bytea[], $15::text[],
		$16::text[]) AS u(run_uid, n, term, id, seq, kind, suspect, sha, size, pieces, body, doc, key_id)
		WHERE u.run_uid IN (` + held + `) ON CONFLICT (run_uid, db, n) DO UPDATE SET suspect = excluded.suspect, doc = excluded.doc,
		sha = excluded.sha, body = excluded.body, key_id = excluded.key_id`
	// markCheckpoints leaves the states alone, also those that were shipped before there was a key.
	markCheckpoints = `UPDATE fleet_checkpoints SET suspect = u.suspect, doc = u.doc
		FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::text[]) AS u(run_uid, n, suspect, doc)
		WHERE fleet_checkpoints.run_uid = u.run_uid AND fleet_checkpoints.db = $1 AND fleet_checkpoints.n = u.n AND u.run_uid IN (` + held + `)`
	putRows = `INSERT INTO fleet_rows (run_uid, kind, key, ord, v, doc, key_id)
		SELECT u.run_uid, u.kind, u.key, u.ord, 2, u.doc, u.key_id
		FROM unnest($4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[]) AS u(run_uid, kind, key, ord, doc, key_id)
		WHERE u.run_uid IN (` + held + `) ON CONFLICT (run_uid, kind, key) DO UPDATE SET ord = excluded.ord, doc = excluded.doc, key_id = excluded.key_id`

	putAudit = `INSERT INTO fleet_audit (db, n, at, who, action, owner, agent, run, outcome, v, doc, texts, hash, key_id)
		SELECT $1, u.n, u.at, u.who, u.action, u.owner, u.agent, u.run, u.outcome, 4, u.doc, u.texts, u.hash, u.key_id
		FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
		$11::text[], $12::text[], $13::text[])
		AS u(n, at, who, action, owner, agent, run, outcome, doc, texts, hash, key_id) ON CONFLICT (db, n) DO NOTHING`
	eraseTexts = `UPDATE fleet_audit SET texts = NULL FROM unnest($2::bigint[], $3::text[], $4::text[], $5::bigint[]) AS u(n, owner, agent, after)
		WHERE fleet_audit.db = $1 AND fleet_audit.n < u.n AND fleet_audit.n > u.after AND fleet_audit.owner = u.owner AND fleet_audit.agent = u.agent AND fleet_audit.texts IS NOT NULL`
	// putErasures names only agents that the audit log names already. Others may have stayed on their host.
	putErasures = `INSERT INTO fleet_erasures (db, n, owner, agent, at)
		SELECT $1, u.n, u.owner, coalesce((SELECT a.agent FROM fleet_audit a WHERE a.db = $1 AND a.owner = u.owner AND a.agent = u.agent LIMIT 1), ''),
		clock_timestamp() FROM unnest($2::bigint[], $3::text[], $4::text[]) AS u(n, owner, agent)
		ON CONFLICT (db, n) DO NOTHING`
)

// dropsOf returns the statements that remove everything of some runs. The runs themselves come last.
func dropsOf(runs string) []string {
	return []string{
		`DELETE FROM fleet_checkpoints WHERE run_uid IN (` + runs + `)`,
		`DELETE FROM fleet_segments WHERE run_uid IN (` + runs + `)`,
		`DELETE FROM fleet_rows WHERE run_uid IN (` + runs + `)`,
		`DELETE FROM fleet_runs WHERE uid IN (` + runs + `)`,
	}
}

// All other statements.
const (
	putHost = `INSERT INTO fleet_hosts (db, name, version, schema, incarnation, registered_at) VALUES ($1, $2, $3, $4, 1, clock_timestamp())
		ON CONFLICT (db) DO UPDATE SET name = excluded.name, version = excluded.version, schema = excluded.schema, registered_at = clock_timestamp()`
	putMark = `INSERT INTO fleet_marks (db, mark_n, mark_hash, beats, seen_at) VALUES ($1, 0, '', 0, clock_timestamp())
		ON CONFLICT (db) DO UPDATE SET forgotten = NULL`
	getMark = `SELECT mark_n, mark_hash FROM fleet_marks WHERE db = $1`
	beat    = `UPDATE fleet_marks SET beats = beats + 1, seen_at = clock_timestamp() WHERE db = $1`
	word    = beat + ` RETURNING beats`
	// needMember makes a host register again that a person took for gone.
	needMember = `SELECT 1 / count(*) FROM fleet_marks WHERE db = $1 AND forgotten IS NULL`

	showStandbys = `SHOW synchronous_standby_names`

	getMeta = `SELECT key, value FROM fleet_meta`
	putMeta = `INSERT INTO fleet_meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value`
	newMeta = `INSERT INTO fleet_meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING`

	listHosts = `SELECT h.db, h.name, h.version, m.mark_n, m.seen_at, clock_timestamp(), h.lease_until, m.forgotten IS NOT NULL,
		(SELECT count(*) FROM fleet_runs r WHERE r.host = h.db) FROM fleet_hosts h JOIN fleet_marks m ON m.db = h.db ORDER BY h.name, h.db`
	listRuns = `SELECT r.uid, r.host, coalesce(h.name, ''), r.owner, coalesce(r.principal, ''), r.agent, r.run, r.status, r.term,
		r.seq, r.updated_at, r.as_of_n
		FROM fleet_runs r LEFT JOIN fleet_hosts h ON h.db = r.host
		WHERE ($1 = '' OR h.name = $1 OR r.host = $1) AND ($2 = '' OR r.owner = $2) AND ($3 = '' OR r.principal = $3) AND ($4 = '' OR r.agent = $4)
		AND ($5 = '' OR r.status = $5) AND r.status <> '' AND ($6 = '' OR r.updated_at < $6 OR r.updated_at = $6 AND r.uid > $7)
		AND ($9 = 1 OR r.principal = $10)
		ORDER BY r.updated_at DESC, r.uid LIMIT $8`
)
