package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// Import reads an export and imports what does not exist here yet. It first puts the whole text
// aside and checks it, so that a truncated or changed export changes nothing. Importing the same
// export again changes nothing either.
//
// A run is imported as it was, in as many transactions as it needs. Until the last one, the run has
// an uncertain operation, so that a half-imported run cannot be resumed.
func (s *Archive) Import(ctx context.Context, sc ckpt.Scope, r ckpt.ImportRequest, body io.Reader) (*ckpt.ImportReport, error) {
	return s.imports(ctx, sc, r, body, Kept{})
}

func (s *Archive) imports(ctx context.Context, sc ckpt.Scope, r ckpt.ImportRequest, body io.Reader, kept Kept) (*ckpt.ImportReport, error) {
	if r.Agent != "" {
		if err := ckpt.CheckAgentName(r.Agent); err != nil {
			return nil, err
		}
	}
	aside, err := s.takeAside(body)
	if err != nil {
		return nil, err
	}
	defer dropAside(aside)
	contents, err := checkExport(aside)
	if err != nil {
		return nil, err
	}
	if r.Agent != "" {
		if len(contents.agents) > 1 {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the export has %d agents: they cannot all be named %s", len(contents.agents), r.Agent)
		}
		contents.agents[0].target = r.Agent
	}
	im := &importing{store: s, scope: sc, contents: contents, aside: aside, ids: map[string]string{}, kept: kept}
	im.report = ckpt.ImportReport{Agent: contents.agents[0].target, Version: exportVersion, Uncertain: []ckpt.UncertainRun{}, Pruned: []string{}}
	for _, a := range contents.agents {
		im.report.Agents = append(im.report.Agents, a.target)
	}
	if err := im.look(ctx); err != nil {
		return nil, err
	}
	if err := im.compare(ctx); err != nil {
		return nil, err
	}
	if err := im.whole(ctx); err != nil {
		im.undo()
		return nil, err
	}
	im.tellRenamed()
	return &im.report, nil
}

// takeAside copies the body into a file beside the database.
func (s *Archive) takeAside(body io.Reader) (*os.File, error) {
	f, err := s.fileAside()
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(f, body); err != nil {
		dropAside(f)
		var e *ckpt.Error
		if errors.As(err, &e) {
			return nil, e
		}
		return nil, ckpt.Wrap(ckpt.CodeInvalid, err, "the import did not arrive completely: nothing was changed; send it again")
	}
	return f, nil
}

// look finds out for each run whether it exists already, and refuses an import that would have to
// join two histories.
func (im *importing) look(ctx context.Context) error {
	return im.store.Submit(&ledger.Op{Owner: im.scope.Caller.Owner, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
		for _, a := range im.contents.agents {
			agent, err := im.store.Agent(tx, im.scope.Whose(), a.target)
			if err != nil {
				return err
			}
			if agent == nil {
				policy, err := im.policyOf(tx, a)
				if err != nil {
					return err
				}
				a.secrets = policy.Secrets
				continue
			}
			a.secrets = agent.Settings.Secrets
			for _, r := range a.order {
				if err := im.lookAt(tx, agent, r); err != nil {
					return err
				}
			}
		}
		return nil
	}})
}

func (im *importing) lookAt(tx *ledger.Tx, agent *ledger.AgentRow, r *runSeen) error {
	r.present, r.half = false, 0
	run, err := tx.RunOfLife(agent.ID, r.base, r.life)
	if err != nil {
		return err
	}
	if run == nil {
		return im.nameHere(tx, agent, r)
	}
	r.called = run.Name
	if half, err := isHalf(tx, run); err != nil || half {
		r.half = run.ID
		return err
	}
	same := run.StartedAt.String() == r.startedAt
	for _, id := range r.ids {
		if here, err := im.here(tx, agent, id); err != nil {
			return err
		} else if same {
			break
		} else if _, err := tx.Get(&same, `SELECT EXISTS (SELECT 1 FROM checkpoints WHERE id = ? AND +run_id = ?)`, here, run.ID); err != nil {
			return err
		}
	}
	if !same {
		return ckpt.Errorf(ckpt.CodeConflict,
			"agent %s already has another run %s: "+
				"import into another agent with --agent, or delete that run first; nothing was imported", agent.Name, r.called)
	}
	if more := r.moreOf(run); more != "" {
		return hasMore(agent.Name, r.called, more)
	}
	r.present, r.there = true, run.ID
	return nil
}

// nameHere finds the name of a life that is not here. It must fit between the lives that are.
func (im *importing) nameHere(tx *ledger.Tx, agent *ledger.AgentRow, r *runSeen) error {
	var later int
	if _, err := tx.Get(&later, `SELECT count(*) FROM runs WHERE agent_id = ?1 AND `+ledger.LivesOf+` AND life > ?3`, agent.ID, r.base, r.life); err != nil {
		return err
	}
	if later > 0 {
		r.called = ckpt.LifeName(r.base, later)
	}
	there, err := tx.Run(agent.ID, r.called)
	if err != nil || there == nil {
		return err
	}
	return hasMore(agent.Name, r.called, fmt.Sprintf("its life %d, and here it is in life %d", r.life, there.Life))
}

// whole imports what look has found missing: first each run with the rows that belong to it, then
// the checkpoints, and finally what makes the runs ready to continue.
func (im *importing) whole(ctx context.Context) error {
	for _, pass := range []func(context.Context, *exportLine, *agentSeen) error{im.runLine, im.checkpointLine} {
		if err := im.contents.each(im.aside, func(l *exportLine, a *agentSeen) error { return pass(ctx, l, a) }); err != nil {
			return err
		}
	}
	if err := im.flush(ctx); err != nil {
		return err
	}
	if err := im.importFiles(ctx); err != nil {
		return err
	}
	for _, a := range im.contents.agents {
		for _, r := range a.order {
			if r.present {
				continue
			}
			if err := im.add(ctx, weightCheckpoint, 0, func(tx *ledger.Tx) error { return im.settle(tx, a, r) }); err != nil {
				return err
			}
		}
	}
	return im.flush(ctx)
}

// runLine imports an agent, a run, or a row of a run.
func (im *importing) runLine(ctx context.Context, l *exportLine, a *agentSeen) error {
	size := int64(len(l.Row))
	switch l.Type {
	case lineAgent:
		return im.add(ctx, weightCheckpoint, int64(len(l.Policy)), func(tx *ledger.Tx) error { _, err := im.target(tx, a); return err })
	case lineRun:
		r, row := a.runs[l.Run], slices.Clone(l.Row)
		if r.present {
			im.report.RunsPresent++
			return nil
		}
		row, report, err := im.screen(a, r, row, true, "its goal or another text of it")
		if err != nil {
			return err
		}
		return im.add(ctx, weightRow, size, func(tx *ledger.Tx) error {
			if err := im.makeRun(tx, a, r, row); err != nil {
				return err
			}
			return report(tx)
		})
	}
	t, r := tableOf(l.Type), a.runs[l.Run]
	if t == nil || r.present {
		return nil
	}
	row, report, err := im.screen(a, r, slices.Clone(l.Row), true, "its "+t.kind)
	if err != nil {
		return err
	}
	return im.add(ctx, weightRow, size, func(tx *ledger.Tx) error {
		if err := im.makeRow(tx, a, r, t, row); err != nil {
			return err
		}
		return report(tx)
	})
}

// screen treats secrets in data from another program as the policy says. Data in our own exports
// was screened when it was first written. report makes the findings.
func (im *importing) screen(a *agentSeen, r *runSeen, data []byte, isJSON bool, what string) (clean []byte,
	report func(*ledger.Tx) error, err error) {
	nothing := func(*ledger.Tx) error { return nil }
	if !r.unscreened || im.store.Opt.Secrets == nil || a.secrets == ckpt.SecretsOff {
		return data, nothing, nil
	}
	clean, found := im.store.Opt.Secrets.Redact(data, isJSON)
	switch {
	case len(found) == 0:
		return data, nothing, nil
	case a.secrets == ckpt.SecretsReject:
		return nil, nil, ckpt.Errorf(ckpt.CodeInvalid,
			"run %s holds what looks like %s at %q in %s, and the policy of agent %s says secrets: reject; nothing was imported",
			r.name, found[0].Kind, found[0].Path, what, a.target)
	case a.secrets == ckpt.SecretsRedact:
		return clean, nothing, nil
	}
	return data, func(tx *ledger.Tx) error {
		agent, err := im.target(tx, a)
		if err != nil {
			return err
		}
		return im.store.ReportBeside(tx, agent, r.called, found)
	}, nil
}

// makeRun makes a run as it was, with an uncertain operation that says that it is not complete yet.
func (im *importing) makeRun(tx *ledger.Tx, a *agentSeen, r *runSeen, text []byte) error {
	agent, err := im.target(tx, a)
	if err != nil {
		return err
	}
	if r.half > 0 {
		if err := im.dropRun(tx, agent, r.half); err != nil {
			return err
		}
	}
	row, err := runs.parseRow(text)
	if err != nil {
		return err
	}
	if err := im.mapRefs(tx, agent, runs, row); err != nil {
		return err
	}
	im.disown(runs, row, r)
	uid := im.keepRun(agent.Name, r.base, row)
	if _, err := tx.Get(&r.id, runs.insert, append([]any{agent.ID, r.called, r.lastSeq, uid}, row...)...); err != nil {
		return err
	}
	tx.Wrote = true
	im.report.Runs++
	if runs.text(row, "source") != "" && !r.ended { // nobody will say that it is over
		err := tx.Exec(`INSERT INTO observed (run_id, ends_at, told_ns, last_at, failed) VALUES (?1, ?2, 0, ?2, 0)`, r.id, tx.Now)
		if err != nil {
			return err
		}
	}
	return tx.Exec(insertDoubt, r.id, halfKey, r.attempts[halfKey]+1, halfName, tx.Now)
}

// disown removes a run's process if it belongs to another user. Otherwise a user could name any
// process, and so make a run look alive forever, or learn when another user's process ends.
func (im *importing) disown(t *table, row []any, r *runSeen) {
	p := liveness.Process{PID: int(t.whole(row, "pid")), Start: t.text(row, "process_start"), Boot: t.text(row, "boot_id")}
	r.disowned = false
	if p.PID == 0 || im.scope.Admin || im.store.Opt.Processes.Alive(p) != liveness.Alive {
		return
	}
	if whose := im.store.Opt.Processes.Owner(p.PID); whose == "" || whose == im.scope.Caller.Owner {
		return
	}
	r.disowned = true
	for _, name := range []string{"pid", "process_start", "boot_id"} {
		row[t.place(name)] = nil
	}
}

func isHalf(tx *ledger.Tx, run *ledger.RunRow) (half bool, err error) {
	_, err = tx.Get(&half, `SELECT EXISTS (SELECT 1 FROM operations
		WHERE run_id = ? AND key = ? AND name = ? AND status = 'uncertain')`, run.ID, halfKey, halfName)
	return half, err
}

// dropRun removes the remains of an import of a run.
func (im *importing) dropRun(tx *ledger.Tx, agent *ledger.AgentRow, id int64) error {
	run, err := tx.RunByID(id)
	if err != nil || run == nil {
		return err
	}
	rows, err := tx.History(id)
	if err != nil {
		return err
	}
	reasons := make([]string, len(rows))
	for i := range reasons {
		reasons[i] = "its import did not end"
	}
	if len(rows) > 0 {
		if _, err := im.store.Remove(tx, agent, run, rows, reasons, ledger.Entry(im.scope, "import", agent.Name)); err != nil {
			return err
		}
	}
	_, err = im.store.DropRows(tx, agent, run)
	return err
}

// undo removes the runs that a failed import has begun. A run that cannot be removed cannot be
// resumed either, and the next import of it begins again.
func (im *importing) undo() {
	for _, a := range im.contents.agents {
		for _, r := range a.order {
			if r.id == 0 {
				continue
			}
			err := im.store.Submit(&ledger.Op{Owner: im.scope.Caller.Owner, Claim: sqlite.Frees, Do: func(tx *ledger.Tx) error {
				agent, err := im.store.Agent(tx, im.scope.Whose(), a.target)
				if err != nil || agent == nil {
					return err
				}
				run, err := tx.RunByID(r.id)
				if err != nil || run == nil || run.AgentID != agent.ID || run.Life != r.life {
					return err
				}
				if half, err := isHalf(tx, run); err != nil || !half {
					return err
				}
				return im.dropRun(tx, agent, r.id)
			}})
			if err != nil {
				im.store.Log.Warn("the remains of a failed import could not be removed: import the run again",
					"agent", a.target, "run", r.called, "error", err)
			}
		}
	}
}

// makeRow imports a row that belongs to a run.
func (im *importing) makeRow(tx *ledger.Tx, a *agentSeen, r *runSeen, t *table, text []byte) error {
	row, err := t.parseRow(text)
	if err != nil {
		return err
	}
	agent, err := im.target(tx, a)
	if err != nil {
		return err
	}
	if err := im.mapRefs(tx, agent, t, row); err != nil {
		return err
	}
	if t.write != nil {
		row = t.write(row)
	}
	if im.report.Rows == nil {
		im.report.Rows = map[string]int64{}
	}
	im.report.Rows[t.kind]++
	if t.kind == lineThread {
		return tx.Exec(`INSERT INTO graph_threads (run_id, thread, ns, agent_id) VALUES (?, ?, ?, ?)`, r.id, row[0], row[1], agent.ID)
	}
	return tx.Exec(t.insert, append([]any{r.id}, row...)...)
}

// mapRefs replaces the ids of the file with the ids that the same things have here.
func (im *importing) mapRefs(tx *ledger.Tx, agent *ledger.AgentRow, t *table, row []any) error {
	for i := range t.columns {
		c := &t.columns[i]
		id, is := row[i].(string)
		if !is || !c.ref && !c.own {
			continue
		}
		var err error
		switch {
		case c.ref:
			row[i], err = im.here(tx, agent, id)
		case t.insert != "":
			row[i], err = im.ownHere(tx, agent, t, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkpointLine imports a checkpoint.
func (im *importing) checkpointLine(ctx context.Context, l *exportLine, a *agentSeen) error {
	if l.Type != lineCheckpoint {
		return nil
	}
	r := a.runs[l.Run]
	c, err := readCheckpoint(l)
	if err != nil {
		return err
	}
	m, marked := a.marks[c.request.ID]
	switch {
	case marked && m.gone:
		return nil
	case r.present:
		im.report.Present++
		return nil
	case marked:
		c.request.Labels, c.pinned, c.suspect = m.labels, m.pinned, m.suspect
	}
	var report func(*ledger.Tx) error
	if c.request.State, report, err = im.screen(a, r, slices.Clone(c.request.State), ckpt.IsJSON(c.request.ContentType), "a state"); err != nil {
		return err
	}
	c.state = blob.Encode(c.request.State)
	c.state.Of = c.stateOf
	return im.add(ctx, weightCheckpoint, int64(len(c.request.State)), func(tx *ledger.Tx) error {
		if err := im.makeCheckpoint(tx, a, r, c); err != nil {
			return err
		}
		return report(tx)
	})
}

func (im *importing) makeCheckpoint(tx *ledger.Tx, a *agentSeen, r *runSeen, c *checkpointSeen) error {
	agent, err := im.target(tx, a)
	if err != nil {
		return err
	}
	run, err := tx.RunByID(r.id)
	if err != nil || run == nil {
		return ledger.ErrOr(err, ckpt.Errorf(ckpt.CodeConflict, "run %s was removed while it was imported: import it again", r.name))
	}
	row := ledger.CheckpointRow{N: tx.Head.N + 1, Seq: c.seq, Kind: c.request.Kind, CreatedAt: c.createdAt,
		ContentType: c.request.ContentType, Labels: c.request.Labels,
		Metadata: ledger.MetadataText(c.request.Metadata), Step: c.request.Step, Operation: c.operation, Pinned: c.pinned, Suspect: c.suspect}
	if row.ID, err = im.here(tx, agent, c.request.ID); err != nil {
		return err
	}
	if c.request.Parent != "" {
		parent, err := im.here(tx, agent, string(c.request.Parent))
		if err != nil {
			return err
		}
		row.Parent = ckpt.Ref(parent)
	}
	if c.program != "" {
		row.Program = c.program
	}
	last, head := run.LastSeq, run.Head
	if taken, err := tx.IDTaken(agent.Owner, row.ID); err != nil {
		return err
	} else if taken {
		return ckpt.Errorf(ckpt.CodeConflict,
			"agent %s already has checkpoint %s in another run: import into another agent with --agent; nothing was imported", agent.Name, row.ID)
	}
	if _, err := tx.InsertRow(run, &row, &c.state); err != nil {
		return err
	}
	run.LastSeq, run.Head = last, head // they are final since the run was made
	run.Removed--
	if err := tx.Exec(`UPDATE runs SET removed = ?, stored_bytes = ? WHERE id = ?`, run.Removed, run.StoredBytes, run.ID); err != nil {
		return err
	}
	if row.ContentType == ckpt.ContentTypeGraph {
		if err := im.store.graphImported(tx, agent, run, row.Seq, c.request.State); err != nil {
			return err
		}
	}
	im.report.Imported++
	im.grown[run.ID] = a
	return im.auditCheckpoint(tx, agent, run, &row, &c.state, a.owner, c.seq)
}

// settle makes a run ready to continue, unless the file does not contain all of it.
func (im *importing) settle(tx *ledger.Tx, a *agentSeen, r *runSeen) error {
	agent, err := im.target(tx, a)
	if err != nil {
		return err
	}
	err = tx.Exec(`UPDATE checkpoints SET suspect = 1 WHERE run_id = ?1 AND suspect = 0 AND EXISTS (SELECT 1 FROM suspicions f WHERE f.run_id = ?1
		AND checkpoints.seq > f.since_seq
		AND checkpoints.seq <= coalesce(f.until_seq, checkpoints.seq))`, r.id)
	if err != nil {
		return err
	}
	run, err := tx.RunByID(r.id)
	if err != nil || run == nil {
		return ledger.ErrOr(err, ckpt.Errorf(ckpt.CodeConflict, "run %s was removed while it was imported: import it again", r.name))
	}
	why, err := im.doubt(tx, agent, run, r)
	if err != nil {
		return err
	}
	if err := tx.Exec(`DELETE FROM operations WHERE run_id = ? AND key = ? AND name = ?`, r.id, halfKey, halfName); err != nil {
		return err
	}
	if err := tx.Exec(`DELETE FROM prompts WHERE run_id = ? AND kind = 'operation' AND operation = ?`, r.id, halfKey); err != nil {
		return err
	}
	if why != "" && !r.ended {
		if err := im.leaveInDoubt(tx, agent.Name, run, r.attempts[halfKey]+1, why); err != nil {
			return err
		}
	}
	e := ledger.Entry(im.scope, "import_run", agent.Name)
	e.Run = run.Name
	e.Detail = map[string]any{"from_owner": a.owner, "checkpoints": r.lastSeq - run.Removed, "status": run.Status}
	if why != "" {
		e.Detail["uncertain"] = why
	}
	if err := tx.Audit(e); err != nil {
		return err
	}
	im.store.ForgetPast(run.ID)
	gone, err := im.store.RetainRun(tx, agent, run, ledger.Entry(im.scope, "import", agent.Name))
	im.report.Pruned = append(im.report.Pruned, gone...)
	if err != nil {
		return err
	}
	if !tx.Trusted.IsZero() {
		return nil
	}
	// While ages are not judged, old checkpoints stay. The new time of the run's last change shows
	// that.
	return tx.Exec(`UPDATE runs SET updated_at = ?1 WHERE id = ?2 AND EXISTS (SELECT 1 FROM checkpoints
		WHERE run_id = ?2 AND kind = 'recovery' AND created_at < ?3)`,
		tx.Now, run.ID, ckpt.At(tx.Now.Add(-time.Duration(agent.Settings.RecoveryKeep))))
}

// doubt says what the file does not contain about a run that had not ended, "" if nothing is
// missing. It becomes the name of an operation, so it must fit "find out whether … took effect".
func (im *importing) doubt(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, r *runSeen) (why string, err error) {
	var fork string
	if from := ledger.ForkWithout(run); from != "" {
		var there bool
		_, err := tx.Get(&there, `SELECT EXISTS (SELECT 1 FROM checkpoints c JOIN runs r ON r.id = c.run_id
			WHERE c.id = ? AND r.agent_id = ?)`, from, agent.ID)
		if err != nil {
			return "", err
		}
		if !there {
			fork = string(from)
			if err := tx.Exec(`UPDATE runs SET forked_from = NULL, head = NULL WHERE id = ?`, run.ID); err != nil {
				return "", err
			}
		}
	}
	_, shipped := im.kept.Runs[[2]string{agent.Name, r.base}] // the run comes from a fleet, and nobody has exported it
	switch {
	case fork != "" && shipped:
		return "anything that was done before checkpoint " + fork + " (this run began there, and the fleet's engine does not have it)", nil
	case fork != "":
		return "anything that was done before checkpoint " + fork + " (this run began there, and the export does not hold it)", nil
	case r.damaged != "" && shipped:
		return "anything in the part of this run that is damaged in the fleet's engine (" + r.damaged + ")", nil
	case r.damaged != "":
		return "anything in the part of this run that was damaged when it was exported (" + r.damaged + ")", nil
	case r.alive && shipped:
		return "anything that this run did on its former host and that the fleet's engine does not have", nil
	case r.alive, r.disowned:
		return "anything that this run did after it was exported (its owner was alive then)", nil
	}
	return "", nil
}
