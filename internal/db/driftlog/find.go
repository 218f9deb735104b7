package driftlog

import (
	"cmp"
	"encoding/json"
	"os"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/google/uuid"
)

// Seen is what the watch of a run saw in one event: new findings, and open ones whose rule no
// longer holds.
type Seen struct {
	found []observer.Found
	over  []ckpt.Finding
	until int64 // the run's newest checkpoint at the event
}

// Any says whether the watch saw anything.
func (o *Seen) Any() bool { return len(o.found) > 0 || len(o.over) > 0 }

// find handles what was seen of a run. It closes the findings that are over. It writes a row for
// each new finding, and for a critical one it secures a rollback target. It says whether a finding
// was critical; then the run's retention must be applied.
//
// at is the checkpoint in which it was seen, if it was seen in one.
func (s *Drifts) find(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, w *Watched, saw Seen,
	at string) (critical bool, err error) {
	if err := s.closeOver(tx, agent, run, saw.over, saw.until); err != nil {
		return false, err
	}
	for i := range saw.found {
		f, err := s.findingOf(tx, agent, run, &saw.found[i], at)
		if err != nil {
			return critical, err
		}
		did, err := s.note(tx, agent, run, w, f, ledger.DaemonEntry(agent, "finding"))
		if err != nil {
			return critical, err
		}
		critical = critical || did
	}
	return critical, nil
}

// findingOf turns what a detector saw into a finding.
func (s *Drifts) findingOf(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, found *observer.Found, at string) (*ckpt.Finding, error) {
	evidence, err := json.Marshal(&found.Evidence)
	if err != nil {
		return nil, err
	}
	f := &ckpt.Finding{Rule: found.Rule, Severity: found.Severity, Message: found.Message, About: cmp.Or(found.About, ckpt.AboutRun),
		Advice: ckpt.Ref(found.Advice), Evidence: evidence, Checkpoint: ckpt.Ref(at)}
	if f.About != ckpt.AboutRun {
		f.SinceSeq = &found.SinceSeq
	}
	if f.Doubts() {
		since, err := keptBack(tx, run, found.SinceSeq)
		if err != nil {
			return nil, err
		}
		f.SinceSeq = &since
	}
	return f, s.begin(tx, agent, run, f)
}

// begin sets the fields that all findings have.
func (s *Drifts) begin(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, f *ckpt.Finding) error {
	id, err := uuid.NewV7()
	f.ID, f.Agent, f.Owner, f.Run, f.At, f.About = id.String(), agent.Name, agent.Owner, run.Name, tx.Now, cmp.Or(f.About, ckpt.AboutRun)
	return err
}

// note stores a finding. If the finding is critical and affects checkpoints, note first makes a
// recovery checkpoint, and then marks all checkpoints since the evidence as suspect.
func (s *Drifts) note(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, w *Watched, f *ckpt.Finding,
	e ledger.AuditEntry) (critical bool, err error) {
	critical = f.Marks()
	drifting := w.Drifting()
	open := w.open
	if f.Rule == ckpt.RuleSecret {
		open = w.secrets
	}
	if len(open) >= ckpt.MaxFindings && (!critical || drifting) {
		return false, nil
	}
	if f.SinceSeq != nil {
		since, err := clampSince(tx, run, *f.SinceSeq)
		if err != nil {
			return false, err
		}
		f.SinceSeq = &since
	}
	if critical {
		if !drifting {
			if w.recovery, err = s.addRecovery(tx, agent, run, f); err != nil {
				return false, err
			}
		}
		if w.recovery != "" {
			f.Checkpoint = w.recovery
		}
	}
	again, err := s.store(tx, agent, run, f)
	if err != nil {
		return false, err
	}
	w.add(f)
	tx.Made = append(tx.Made, *f)
	marked := int64(0)
	if critical {
		tx.Touches(run)
		marked, err = tx.ExecCount(`UPDATE checkpoints SET suspect = 1 WHERE run_id = ?
			AND kind IN ('routine', 'pre_operation', 'recovery') AND seq > ? AND suspect = 0`, run.ID, *f.SinceSeq)
		if err != nil {
			return false, err
		}
	}
	e.Run, e.Subject, e.Detail = run.Name, f.ID, map[string]any{"rule": f.Rule, "severity": f.Severity}
	if critical {
		e.Detail["since_seq"], e.Detail["marked_suspect"] = *f.SinceSeq, marked
	}
	if again {
		e.Detail["again"] = true
	}
	if err := tx.Audit(e); err != nil || f.Severity != ckpt.SeverityCritical {
		return critical, err
	}
	_, _, err = s.Notify(tx, ckpt.NoticeFinding, ckpt.NoticeData{
		Owner: f.Owner, Agent: f.Agent, Run: f.Run, Subject: f.ID, Message: f.Rule + ": " + f.Message,
	})
	return critical, err
}

// store writes a finding. If its rule fires again soon after it has recovered, store opens that
// finding again, and f becomes it.
func (s *Drifts) store(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, f *ckpt.Finding) (again bool, err error) {
	before, err := s.recovered(tx, agent, run, f)
	if err != nil {
		return false, err
	}
	if before == nil {
		f.Earlier = ckpt.JSON(`[]`)
		return false, tx.Insert(`INSERT INTO findings
			(id, run_id, at, rule, severity, message, advice, evidence, checkpoint, about, posted, since_seq)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			f.ID, run.ID, f.At, f.Rule, string(f.Severity), f.Message, f.Advice, f.Evidence, f.Checkpoint, string(f.About), f.Posted, f.SinceSeq)
	}
	if f.SinceSeq != nil && before.UntilSeq != nil {
		*f.SinceSeq = max(*f.SinceSeq, *before.UntilSeq)
	}
	if f.Checkpoint == "" {
		f.Checkpoint = before.Checkpoint
	}
	err = tx.Fill(`UPDATE findings SET closed = NULL, closed_at = NULL, closed_step = NULL, until_seq = NULL, since_seq = ?1, checkpoint = ?2,
		earlier = json_insert(earlier, '$[#]', json_object('since_seq', since_seq, 'until_seq', until_seq, 'checkpoint', checkpoint))
		WHERE id = ?3`, f.SinceSeq, f.Checkpoint, before.ID)
	if err != nil {
		return false, err
	}
	_, err = tx.Get(f, `SELECT `+FindingColumns+FindingTables+`WHERE f.id = ?`, before.ID)
	return true, err
}

// recovered returns the finding that has recovered and is found again within its rule's cooldown, nil
// if there is none.
func (s *Drifts) recovered(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, f *ckpt.Finding) (*ckpt.Finding, error) {
	if f.Posted {
		return nil, nil
	}
	var before ckpt.Finding
	found, err := tx.Get(&before, `SELECT `+FindingColumns+FindingTables+`WHERE f.run_id = ?1 AND f.closed = 'recovered'
		AND f.rule = ?2 AND f.severity = ?3 AND f.about = ?4 AND f.dismissed_at IS NULL AND NOT f.posted
		AND f.evidence ->> 'tool' IS json_extract(?5, '$.tool') AND f.evidence ->> 'pointer' IS json_extract(?5, '$.pointer')
		AND f.until_seq >= max(r.stretch_seq, r.last_seq - ?6) AND f.closed_step >= r.steps_ended - ?6
		ORDER BY f.closed_at DESC, f.id DESC LIMIT 1`,
		run.ID, f.Rule, string(f.Severity), string(f.About), string(f.Evidence), agent.Settings.Cooldown(f.Rule))
	if err != nil || !found {
		return nil, err
	}
	return &before, nil
}

// clampSince keeps the evidence of a finding within the segment in which it was seen: earlier
// checkpoints were left behind, or the run went back to them.
func clampSince(tx *ledger.Tx, run *ledger.RunRow, since int64) (int64, error) {
	var least int64
	_, err := tx.Get(&least, `SELECT stretch_seq FROM runs WHERE id = ?`, run.ID)
	return min(max(since, least), run.LastSeq), err
}

// keptBack keeps the rollback target clean if no clean checkpoint from before the evidence is left.
func keptBack(tx *ledger.Tx, run *ledger.RunRow, since int64) (int64, error) {
	if !run.BackSeq.Valid || run.BackSeq.Int64 <= since {
		return since, nil
	}
	var clean bool
	_, err := tx.Get(&clean, `SELECT EXISTS (SELECT 1 FROM checkpoints WHERE run_id = ? AND suspect = 0 AND seq <= ?
		AND `+ledger.IsIntact+`)`, run.ID, since)
	if err != nil || clean {
		return since, err
	}
	return run.BackSeq.Int64, nil
}

// SuspectIfDrifting marks a new checkpoint as suspect if a critical finding is open.
func SuspectIfDrifting(tx *ledger.Tx, run *ledger.RunRow, row *ledger.CheckpointRow) error {
	var drifting bool
	_, err := tx.Get(&drifting, `SELECT EXISTS (SELECT 1 FROM findings WHERE run_id = ? AND closed IS NULL
		AND severity = 'critical' AND since_seq IS NOT NULL)`, run.ID)
	row.Suspect = row.Suspect || drifting
	return err
}

// addRecovery saves the run's newest state again, from the same pieces, as a recovery checkpoint.
// It returns its id, or "" if there is no state or the state does not read back. The recovery
// checkpoint is itself suspect, because the state is, but it stays when the routine ones are
// removed.
func (s *Drifts) addRecovery(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, f *ckpt.Finding) (ckpt.Ref, error) {
	c, err := newestState(tx, agent, run)
	if c == nil || err != nil {
		return "", err
	}
	again, err := blob.Again(tx.Tx, run.ID, c)
	if err != nil {
		return "", err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	row := ledger.CheckpointRow{N: tx.Head.N + 1, ID: id.String(), Seq: run.LastSeq + 1, Kind: ckpt.KindRecovery,
		Parent: ckpt.Ref(c.ID), CreatedAt: tx.Now,
		ContentType: c.ContentType, Metadata: ledger.MetadataText(c.Metadata), Step: c.Step, Suspect: true}
	if c.Program != nil {
		text, err := json.Marshal(c.Program)
		if err != nil {
			return "", err
		}
		row.Program = string(text)
	}
	head := run.Head
	list, err := tx.InsertRow(run, &row, &again)
	if err != nil {
		return "", err
	}
	if len(c.Trees) > 0 { // its files are kept too
		err := tx.Insert(`INSERT INTO checkpoint_trees (n, place, run_id, seq, tree_id) SELECT ?1, x.place, x.run_id, ?2, x.tree_id
			FROM checkpoints k JOIN checkpoint_trees x ON x.n = k.n AND x.run_id = k.run_id
			WHERE k.id = ?3 AND +k.run_id = ?4 AND x.tree_id IS NOT NULL`, row.N, row.Seq, c.ID, run.ID)
		if err != nil {
			return "", err
		}
	}
	run.Head = head // the agent goes on from its own checkpoint, not from the copy
	if err := tx.NoteSaved(run); err != nil {
		return "", err
	}
	s.States.Keep(tx.Tx, blob.RunKey{Owner: agent.Owner, Agent: agent.Name, Run: run.Name}, row.Place(run), &again, list)
	e := ledger.AuditEntry{Who: ledger.Daemon, PID: os.Getpid(), Action: "save", Owner: agent.Owner,
		Agent: agent.Name, Run: run.Name, Subject: row.ID, Outcome: ledger.OutcomeDone,
		Reason: "critical drift: " + f.Rule, Detail: map[string]any{"finding": f.ID}}
	if e.Save, err = tx.Facts(run, &row, &again, 0); err != nil {
		return "", err
	}
	if err := tx.Audit(e); err != nil {
		return "", err
	}
	return ckpt.Ref(row.ID), nil
}

// newestState is the state that the run saved last since it began, nil if there is none or it is
// damaged.
func newestState(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow) (*ckpt.Checkpoint, error) {
	if run.Head == "" {
		return nil, nil
	}
	c, err := tx.CheckpointOf(agent, ckpt.RestoreRequest{Agent: agent.Name, Checkpoint: string(run.Head)})
	if code := ckpt.CodeOf(err); code == ckpt.CodeNotFound || code == ckpt.CodeCorrupt {
		return nil, nil
	}
	if err != nil || c.Run != run.Name { // a fork without a checkpoint of its own has the head of another run
		return nil, err
	}
	return c, nil
}

// cleanCheckpoint selects the checkpoint to go back to: the newest clean one since the run began and
// before the evidence of every open finding that doubts checkpoints. ?1 is the run, ?2 the newest
// one that may be chosen, ?4 the checkpoint that it was forked from while it has none of its own.
const cleanCheckpoint = `SELECT c.id FROM checkpoints c WHERE c.slot IN (
			SELECT slot FROM (SELECT slot FROM checkpoints WHERE run_id = ?1 AND kind = 'routine'
				AND suspect = 0 AND seq <= ?2 AND ` + ledger.IsIntact + ` ORDER BY seq DESC LIMIT 1)
			UNION ALL SELECT slot FROM (SELECT slot FROM checkpoints WHERE run_id = ?1 AND kind = 'pre_operation'
				AND suspect = 0 AND seq <= ?2 AND ` + ledger.IsIntact + ` ORDER BY seq DESC LIMIT 1)
			UNION ALL SELECT slot FROM (SELECT slot FROM checkpoints WHERE run_id = ?1 AND kind = 'recovery'
				AND suspect = 0 AND seq <= ?2 AND ` + ledger.IsIntact + ` ORDER BY seq DESC LIMIT 1)
			UNION ALL ` + ledger.SlotOfFork + `)
		ORDER BY c.run_id = ?1 DESC, c.seq DESC LIMIT 1`

// Verdict is the part of a write's reply about drift: the run's current verdict, and the findings
// of this write.
func (s *Drifts) Verdict(tx *ledger.Tx, run *ledger.RunRow, w *Watched) (*ckpt.DriftVerdict, error) {
	v := verdictOf(w.open)
	for _, f := range tx.Made {
		if f.Rule == ckpt.RuleSecret {
			v.Secrets = append(v.Secrets, f)
		} else {
			v.Findings = append(v.Findings, f)
		}
	}
	if w.Drifting() {
		v.Recovery = w.recovery
	}
	sound := soundUpTo(w.open, run.LastSeq)
	if sound == run.LastSeq {
		return v, nil
	}
	_, err := tx.Get(&v.Clean, cleanCheckpoint, run.ID, sound, nil, ledger.ForkWithout(run))
	return v, err
}

// soundUpTo is the newest checkpoint that no open finding doubts; last is the run's newest.
func soundUpTo(open []ckpt.Finding, last int64) int64 {
	for i := range open {
		if f := &open[i]; f.Doubts() {
			last = min(last, *f.SinceSeq)
		}
	}
	return last
}

// verdictOf has the severity and the advice of the gravest open finding, the newest if there are
// several. open has no findings of secrets, which are no drift.
func verdictOf(open []ckpt.Finding) *ckpt.DriftVerdict {
	v := &ckpt.DriftVerdict{Verdict: ckpt.SeverityNone, Findings: []ckpt.Finding{}}
	for i := range open {
		if open[i].Severity.Rank() >= v.Verdict.Rank() {
			v.Verdict, v.Advice = open[i].Severity, open[i].Advice
		}
	}
	return v
}
