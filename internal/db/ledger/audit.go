package ledger

import (
	"encoding/hex"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// Audit adds a row to the log, which writeLog writes at the end of the transaction. The number of
// the next row is tx.Head.N+1, so a row of another table can use that number before the call.
func (tx *Tx) Audit(e AuditEntry) error {
	a, err := tx.newAct(&e)
	if err != nil {
		return err
	}
	tx.acts = append(tx.acts, a)
	if tx.Store.feed.watched.Load() > 0 {
		if what := whatOf(&e); what != "" {
			tx.changed = append(tx.changed, changed{what, e.Owner, e.Agent, e.Run})
		}
	}
	if tx.Tally.Counts() && a.causedByOwner() {
		tx.Tally.AddLog(e.Owner, usage.ActLength(len(a.texts.subject)+len(a.texts.reason)+len(a.texts.detail)))
	}
	tx.Wrote = true
	tx.Head.N = a.n
	return nil
}

// auditRemoval notes that a checkpoint was removed: in the row of the save that caused the removal,
// or in a row of its own.
func (tx *Tx) auditRemoval(e AuditEntry, agent *AgentRow, run *RunRow, row *HeldRow, why string) error {
	if e.into > 0 {
		save := tx.actOf(e.into)
		save.removed = append(save.removed, removed{row.N, why})
		return nil
	}
	e.Action, e.Owner, e.Agent, e.Run, e.Life, e.Subject = "remove", agent.Owner, agent.Name, run.Name, run.Life, row.ID
	e.Reason, e.Detail, e.Save, e.gone, e.why = "", nil, nil, row.N, why
	return tx.Audit(e)
}

// AmendSave sets in the row of a save of this transaction whether the checkpoint is suspect.
func (tx *Tx) AmendSave(n int64, suspect bool) {
	tx.actOf(n).save.Suspect = suspect
}

// actOf finds a row of this transaction by its number.
func (tx *Tx) actOf(n int64) *act { return &tx.acts[n-tx.acts[0].n] }

// auditRows is the most rows that one statement inserts into the log.
const auditRows = 16

const (
	insertActs = `INSERT INTO acts (n, at, who, pid, action, place, outcome, retries, kind, seq, parent, size, stored, gone, why,
		subject, sha256, rest, beside, more, hash) VALUES `
	actValues  = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	insertText = `INSERT INTO act_texts (n, salt, subject, reason, detail) VALUES (?, ?, ?, ?, ?)`
)

// actInserts are the statements for 1, 2, 4, … rows.
var actInserts = func() map[int]string {
	all := map[int]string{}
	for n := 1; n <= auditRows; n *= 2 {
		all[n] = insertActs + actValues + strings.Repeat(", "+actValues, n-1)
	}
	return all
}()

// WriteLog writes the rows of the log so far, so that a long transaction does not hold all of them in memory. A row that
// is written can no longer be amended.
func (tx *Tx) WriteLog() error { return tx.writeLog() }

// writeLog writes the rows of the log that the transaction has collected, many at once, because a
// statement costs more than a row.
func (tx *Tx) writeLog() error {
	rows, columns := tx.acts, tx.Store.actColumns
	defer func() {
		clear(tx.acts)
		clear(columns[:cap(columns)])
		if tx.Store.actColumns = columns; cap(tx.acts) <= 2*sqlite.MaxBatch {
			tx.Store.acts = tx.acts
		}
		tx.acts = nil
	}()
	for len(rows) > 0 {
		n := 1
		for n*2 <= min(len(rows), auditRows) {
			n *= 2
		}
		columns = columns[:0]
		for i := range rows[:n] {
			var err error
			if columns, err = tx.actArgs(columns, &rows[i]); err != nil {
				return err
			}
		}
		if err := tx.Exec(actInserts[n], columns...); err != nil {
			return err
		}
		rows = rows[n:]
		tx.GotOn()
	}
	return nil
}

// actArgs seals an act, writes its texts, and appends its columns to args.
func (tx *Tx) actArgs(args []any, a *act) ([]any, error) {
	a.seal(tx.Store.chainKey, tx.Head.Hash)
	tx.Head.Hash = hex.EncodeToString(a.hash)
	if a.beside != nil {
		if err := tx.Exec(insertText, a.n, a.salt, ckpt.Ref(a.texts.subject), ckpt.Ref(a.texts.reason), ckpt.Ref(a.texts.detail)); err != nil {
			return nil, err
		}
	}
	place, err := tx.place(a)
	if err != nil {
		return nil, err
	}
	who := ckpt.Ref(a.who)
	if a.who == a.place.owner {
		who = ""
	}
	args = append(args, a.n, a.at, who, a.pid, a.action, place, ckpt.Ref(a.outcome), orNull(int64(a.retries)))
	if s := a.save; s == nil {
		args = append(args, nil, nil, nil, nil, nil)
	} else {
		stored := any(s.Stored)
		if s.Stored == s.Size {
			stored = nil
		}
		args = append(args, orNull(kindNumber(s.Kind)), orNull(s.Seq), orNull(s.ParentN), s.Size, stored)
	}
	return append(args, orNull(a.gone), ckpt.Ref(a.why), bytesOrNull(a.subject), bytesOrNull(a.sha256), bytesOrNull(a.rest()), bytesOrNull(a.beside),
		ckpt.Ref(a.more), a.hash), nil
}

func orNull(v int64) any {
	if v == 0 {
		return nil
	}
	return v
}

func bytesOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// recordable is Meter.MayRecord for the entry of a refusal. It adds to the entry how many refusals
// were not recorded before.
func (s *Core) recordable(e *AuditEntry) bool {
	may, silent := s.Usage.MayRecord(e.Owner)
	if silent > 0 {
		e.Detail = map[string]any{"not_recorded_before": silent}
	}
	return may
}
