package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// Audit adds a row to the log, which writeLog writes at the end of the
// transaction. The number of the next row is tx.head.n+1, so a row of another
// table can be numbered for it before.
func (tx *Tx) Audit(e AuditEntry) error {
	row := ckpt.AuditRow{
		N: tx.Head.N + 1, At: tx.Now, Who: e.Who, PID: e.PID, Action: e.Action, Owner: ckpt.Ref(e.Owner), Agent: ckpt.Ref(e.Agent),
		Run: ckpt.Ref(e.Run), Subject: ckpt.Ref(e.Subject), Outcome: e.Outcome, Reason: ckpt.Ref(e.Reason),
		Retries: tx.Retries, Detail: ckpt.JSON("{}"), Prev: tx.Head.Hash,
	}
	switch {
	case e.JSON != "":
		row.Detail = ckpt.JSON(e.JSON)
	case len(e.Detail) > 0:
		var err error
		if row.Detail, err = json.Marshal(e.Detail); err != nil {
			return err
		}
	}
	row.Hash = AuditHash(&row)
	tx.log = append(tx.log, row)
	if tx.Tally.Counts() && causedBy(&row) {
		tx.Tally.AddLog(e.Owner, usage.LogLength(&row))
	}
	tx.Wrote = true
	tx.Head = ChainHead{row.N, row.Hash}
	return nil
}

// auditRows is how many rows go into the log by one statement at most.
const auditRows = 16

const (
	insertAudit = `INSERT INTO audit_log (n, at, who, pid, action, owner, agent, run, subject, outcome, reason, retries, detail, prev, hash) VALUES `
	auditValues = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

// auditInserts are the statements for 1, 2, 4, … rows.
var auditInserts = func() map[int]string {
	all := map[int]string{}
	for n := 1; n <= auditRows; n *= 2 {
		all[n] = insertAudit + auditValues + strings.Repeat(", "+auditValues, n-1)
	}
	return all
}()

// writeLog writes the rows of the log that the transaction has gathered, many
// at once: a statement costs more than a row.
func (tx *Tx) writeLog() error {
	rows := tx.log
	tx.log = nil
	for len(rows) > 0 {
		n := 1
		for n*2 <= min(len(rows), auditRows) {
			n *= 2
		}
		args := make([]any, 0, 15*n)
		for i := range rows[:n] {
			r := &rows[i]
			args = append(args, r.N, r.At, r.Who, r.PID, r.Action, r.Owner, r.Agent, r.Run, r.Subject, r.Outcome, r.Reason, r.Retries, string(r.Detail), r.Prev, r.Hash)
		}
		if err := tx.Exec(auditInserts[n], args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// AuditHash is the SHA-256 of a row's fields, the hash of the row before among
// them, as a JSON array in the order of the columns. An absent field is null.
func AuditHash(r *ckpt.AuditRow) string {
	b := AppendAudit(make([]byte, 0, 512), r)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// causedBy says whether an owner has caused a row of the audit log that is about
// him: not what an administrator does.
func causedBy(r *ckpt.AuditRow) bool {
	return r.Owner != "" && (r.Who == string(r.Owner) || r.Who == Daemon)
}

// recordable is Meter.MayRecord for an entry of a refusal, which then says how many
// were not recorded.
func (s *Core) recordable(e *AuditEntry) bool {
	may, silent := s.Usage.MayRecord(e.Owner)
	if silent > 0 {
		e.Detail = map[string]any{"not_recorded_before": silent}
	}
	return may
}
