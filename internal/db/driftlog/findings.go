package driftlog

const (
	FindingColumns = `f.id, a.name AS agent, a.owner, r.name AS run, f.at, f.rule, f.severity, f.message, f.advice, f.evidence, f.checkpoint,
		f.about, f.posted, f.since_seq, f.until_seq, f.earlier, f.closed, f.closed_at, f.dismissed_at, f.dismissed_by`
	FindingTables = ` FROM findings f JOIN runs r ON r.id = f.run_id JOIN agents a ON a.id = r.agent_id `

	openFindings = `SELECT ` + FindingColumns + FindingTables + `WHERE f.run_id = ? AND f.closed IS NULL AND f.rule <> 'secret' ORDER BY f.at, f.id`
	openSecrets  = `SELECT ` + FindingColumns + FindingTables + `WHERE f.run_id = ? AND f.closed IS NULL AND f.rule = 'secret' ORDER BY f.at, f.id`
)
