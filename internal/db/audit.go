package db

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// outcomeDone is the outcome of an audit row that reports success; any other
// outcome is an error code.
const outcomeDone = "done"

// daemon is who does what nobody asked for: retention, maintenance, the start.
const daemon = "daemon"

// auditEntry is what a transaction has to say; the rest of the row is the
// transaction's own: when, which number, which hash.
type auditEntry struct {
	Who     string
	PID     int
	Action  string
	Owner   string
	Agent   string
	Run     string
	Subject string
	Outcome string
	Reason  string
	Detail  map[string]any
}

// chainHead is the last row of the audit log.
type chainHead struct {
	n    int64
	hash string
}

// entry begins an audit entry of something that a caller did to an agent.
func entry(sc ckpt.Scope, action, agent string) auditEntry {
	e := auditEntry{Who: sc.Caller.Owner, PID: sc.PID, Action: action, Owner: sc.Whose(), Agent: agent, Outcome: outcomeDone}
	if !sc.Spooled.IsZero() {
		e.Reason = "spooled by the client at " + sc.Spooled.String()
	}
	return e
}

// audit adds a row to the log. The number of the next row is tx.head.n+1, so a
// row of another table can be numbered for it before.
func (tx *tx) audit(e auditEntry) error {
	row := ckpt.AuditRow{
		N: tx.head.n + 1, At: tx.now, Who: e.Who, PID: e.PID, Action: e.Action, Owner: ckpt.Ref(e.Owner), Agent: ckpt.Ref(e.Agent),
		Run: ckpt.Ref(e.Run), Subject: ckpt.Ref(e.Subject), Outcome: e.Outcome, Reason: ckpt.Ref(e.Reason),
		Retries: tx.retries, Detail: ckpt.JSON("{}"), Prev: tx.head.hash,
	}
	if len(e.Detail) > 0 {
		var err error
		if row.Detail, err = json.Marshal(e.Detail); err != nil {
			return err
		}
	}
	row.Hash = auditHash(&row)
	err := tx.exec(`INSERT INTO audit_log (n, at, who, pid, action, owner, agent, run, subject, outcome, reason, retries, detail, prev, hash)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		row.N, row.At, row.Who, row.PID, row.Action, row.Owner, row.Agent, row.Run, row.Subject, row.Outcome, row.Reason,
		row.Retries, string(row.Detail), row.Prev, row.Hash)
	if err != nil {
		return err
	}
	tx.head = chainHead{row.N, row.Hash}
	return nil
}

// auditHash is the SHA-256 of a row's fields, the hash of the row before among
// them, as a JSON array in the order of the columns. An absent field is null.
func auditHash(r *ckpt.AuditRow) string {
	b, err := json.Marshal([]any{r.N, r.At, r.Who, r.PID, r.Action, r.Owner, r.Agent, r.Run, r.Subject, r.Outcome,
		r.Reason, r.Retries, string(r.Detail), r.Prev})
	if err != nil {
		panic("an audit row cannot be written as JSON: " + err.Error()) // every field is text or a number
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
