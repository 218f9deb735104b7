package copy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Import reads an export and imports what does not exist here yet, in one transaction. It first puts the whole file
// aside and checks it, so that an export that was cut off or changed changes nothing. Importing the same export again
// changes nothing either.
func (s *Copier) Import(ctx context.Context, sc ckpt.Scope, r ckpt.ImportRequest, body io.Reader) (*ckpt.ImportReport, error) {
	return s.imports(ctx, sc, r, body, Kept{})
}

// Kept are the identities of runs that an import keeps, by the agent's name and the run's.
type Kept struct {
	Runs map[[2]string]KeptRun
}

// KeptRun is the identity of a run, and the epoch with which it continues.
type KeptRun struct {
	UID   string
	Epoch int64
}

// ImportKept is Import that keeps identities. Only a host that restores its own rows may use it, so
// no request can.
func (s *Copier) ImportKept(ctx context.Context, sc ckpt.Scope, body io.Reader, kept Kept) (*ckpt.ImportReport, error) {
	return s.imports(ctx, sc, ckpt.ImportRequest{}, body, kept)
}

func (s *Copier) imports(ctx context.Context, sc ckpt.Scope, r ckpt.ImportRequest, body io.Reader, kept Kept) (*ckpt.ImportReport, error) {
	if r.Agent != "" {
		if err := ckpt.CheckAgentName(r.Agent); err != nil {
			return nil, err
		}
	}
	path, drop, err := s.aside()
	if err != nil {
		return nil, err
	}
	defer drop()
	in, err := s.stage(ctx, path, body)
	if err != nil {
		return nil, err
	}
	if err := in.open(ctx); err != nil {
		return nil, err
	}
	defer in.close()
	if r.Agent != "" {
		if len(in.agents) > 1 {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the export has %d agents: they cannot all be named %s", len(in.agents), r.Agent)
		}
		in.agents[0].target = r.Agent
	}
	im := &importing{Copier: s, ctx: ctx, scope: sc, incoming: in, kept: kept}
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Size: min(in.size, queuedMost), Entry: ledger.Entry(sc, "import", in.agents[0].target), Do: im.all})
	if err != nil {
		return nil, err
	}
	return &im.report, nil
}

// queuedMost is the most bytes that an import counts for in the queue of the writer, which holds none of them in memory.
const queuedMost = 64 << 20

// importing is an import in its transaction.
type importing struct {
	*Copier
	*incoming
	ctx     context.Context
	scope   ckpt.Scope
	kept    Kept
	tx      *ledger.Tx
	ids     map[string]string // of checkpoints, findings and prompts: the ids here, if they differ
	report  ckpt.ImportReport
	numbers [numberings]map[int64]int64 // of contents and trees: those here
	mine    map[int64]bool              // contents that this import has brought
	held    int                         // rows of the log that are not written yet
}

// all imports everything. The transaction may be tried again, so it begins anew.
func (im *importing) all(tx *ledger.Tx) error {
	im.tx, im.ids, im.held, im.mine, im.numbers = tx, map[string]string{}, 0, map[int64]bool{}, [numberings]map[int64]int64{contentNo: {}, treeNo: {}}
	im.report = ckpt.ImportReport{Agent: im.agents[0].target, Version: exportVersion, Uncertain: []ckpt.UncertainRun{}, Pruned: []string{}}
	for _, a := range im.agents {
		im.report.Agents = append(im.report.Agents, a.target)
		for _, r := range a.runs {
			r.arriving = arriving{segments: map[int64]placed{}, closed: map[int64]bool{}}
		}
	}
	for _, step := range []func(*agentSeen) error{im.look, im.compare, im.agent} {
		for _, a := range im.agents {
			if err := step(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// look finds out for each run whether it exists already, and refuses an import that would have to
// join two histories.
func (im *importing) look(a *agentSeen) error {
	agent, err := im.Agent(im.tx, im.scope.Whose(), a.target)
	if err != nil {
		return err
	}
	if agent == nil {
		policy, err := im.policyOf(a)
		a.secrets = policy.Secrets
		return err
	}
	a.secrets = agent.Settings.Secrets
	for _, r := range a.runs {
		if err := im.lookAt(agent, r); err != nil {
			return err
		}
	}
	return nil
}

func (im *importing) lookAt(agent *ledger.AgentRow, r *runSeen) error {
	run, err := im.tx.RunOfLife(agent.ID, r.Base, r.Life)
	if err != nil {
		return err
	}
	if run == nil {
		return im.nameHere(agent, r)
	}
	r.called = run.Name
	same := run.StartedAt.String() == r.StartedAt
	if !same {
		var ids []string // of its first checkpoint and its newest
		err := im.q.SelectContext(im.ctx, &ids, `SELECT id FROM (SELECT id, seq FROM checkpoints WHERE run_id = ?1 ORDER BY seq LIMIT 1)
			UNION SELECT id FROM (SELECT id, seq FROM checkpoints WHERE run_id = ?1 ORDER BY seq DESC LIMIT 1)`, r.ID)
		if err != nil {
			return err
		}
		for _, id := range ids {
			here, err := im.here(agent, id)
			if err == nil && !same {
				_, err = im.tx.Get(&same, `SELECT EXISTS (SELECT 1 FROM checkpoints WHERE id = ? AND +run_id = ?)`, here, run.ID)
			}
			if err != nil {
				return err
			}
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
func (im *importing) nameHere(agent *ledger.AgentRow, r *runSeen) error {
	var later int
	if _, err := im.tx.Get(&later, `SELECT count(*) FROM runs WHERE agent_id = ?1 AND `+ledger.LivesOf+` AND life > ?3`, agent.ID, r.Base, r.Life); err != nil {
		return err
	}
	if later > 0 {
		r.called = ckpt.LifeName(r.Base, later)
	}
	there, err := im.tx.Run(agent.ID, r.called)
	if err != nil || there == nil {
		return err
	}
	return hasMore(agent.Name, r.called, fmt.Sprintf("its life %d, and here it is in life %d", r.Life, there.Life))
}

// agent imports an agent: its missing runs with the rows that belong to them, the checkpoints, the files, and finally
// what makes the runs ready to continue.
func (im *importing) agent(a *agentSeen) error {
	agent, err := im.target(a)
	if err != nil {
		return err
	}
	fresh := false
	for _, r := range a.runs {
		if r.present {
			im.report.RunsPresent++
			var n int
			if err := im.q.GetContext(im.ctx, &n, `SELECT count(*) FROM checkpoints WHERE run_id = ?`, r.ID); err != nil {
				return err
			}
			im.report.Present += n
			continue
		}
		fresh = true
		if err := im.makeRun(agent, a, r); err != nil {
			return err
		}
		for _, t := range tables {
			if t.taken {
				if err := im.take(t, agent, a, r); err != nil {
					return err
				}
			}
		}
	}
	if !fresh {
		return nil
	}
	for _, step := range []func(*ledger.AgentRow, *agentSeen) error{im.checkpoints, im.sameGraphs, im.files} {
		if err := step(agent, a); err != nil {
			return err
		}
	}
	for _, r := range a.runs {
		if !r.present {
			if err := im.settle(agent, a, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// each calls do with each row of a table that hangs on a run.
func (im *importing) each(t *table, run int64, do func([]any) error) error {
	rows, err := im.q.QueryxContext(im.ctx, t.query(), 0, run)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.SliceScan()
		if err == nil {
			err = do(values)
		}
		if err != nil {
			return err
		}
	}
	return rows.Err()
}

// comes says whether an import takes a column.
func comes(c *column) bool { return c.no != rowNo && c.no != leftOut }

// take imports the rows of a table that belong to a run.
func (im *importing) take(t *table, agent *ledger.AgentRow, a *agentSeen, r *runSeen) error {
	insert := t.insert(comes)
	if t == runSegments { // the trigger of the run has made the present one
		if err := im.tx.Exec(`DELETE FROM run_segments WHERE run_id = ?`, r.run.ID); err != nil {
			return err
		}
	}
	return im.each(t, r.ID, func(values []any) error {
		report, err := im.screenRow(a, r, t, values, "its "+t.kind)
		if err != nil {
			return err
		}
		if err := im.mapRefs(agent, t, values); err != nil {
			return err
		}
		var args []any
		for i := range t.columns {
			c := &t.columns[i]
			switch {
			case c.no == runNo:
				args = append(args, r.run.ID)
			case c.no == agentNo:
				args = append(args, agent.ID)
			case comes(c):
				args = append(args, values[i])
			}
		}
		if t.kind != "" {
			if im.report.Rows == nil {
				im.report.Rows = map[string]int64{}
			}
			im.report.Rows[t.kind]++
		}
		if err := im.tx.Insert(insert, args...); err != nil {
			return err
		}
		return report()
	})
}

// screen treats secrets in data from another program as the policy says. Data in our own exports
// was screened when it was first written. report makes the findings.
func (im *importing) screen(a *agentSeen, r *runSeen, data []byte, isJSON bool, what string) (clean []byte, report func() error, err error) {
	nothing := func() error { return nil }
	if !r.unscreened || im.Opt.Secrets == nil || a.secrets == ckpt.SecretsOff {
		return data, nothing, nil
	}
	clean, found := im.Opt.Secrets.Redact(data, isJSON)
	switch {
	case len(found) == 0:
		return data, nothing, nil
	case a.secrets == ckpt.SecretsReject:
		return nil, nil, ckpt.Errorf(ckpt.CodeInvalid,
			"run %s holds what looks like %s at %q in %s, and the policy of agent %s says secrets: reject; nothing was imported",
			r.Name, found[0].Kind, found[0].Path, what, a.target)
	case a.secrets == ckpt.SecretsRedact:
		return clean, nothing, nil
	}
	return data, func() error {
		agent, err := im.target(a)
		if err != nil {
			return err
		}
		return im.ReportBeside(im.tx, agent, r.called, found)
	}, nil
}

// screenRow is screen for the values of a row, which it changes.
func (im *importing) screenRow(a *agentSeen, r *runSeen, t *table, values []any, what string) (report func() error, err error) {
	if !r.unscreened {
		return func() error { return nil }, nil
	}
	text, err := t.appendRow(nil, t.lineValues(values))
	if err != nil {
		return nil, err
	}
	clean, report, err := im.screen(a, r, text, true, what)
	if err != nil {
		return nil, err
	}
	row, err := t.parseRow(clean)
	for i := range row {
		if inLine(&t.columns[i]) {
			values[i] = row[i]
		}
	}
	return report, err
}

// lineValues are the values of the columns that a line of JSON has.
func (t *table) lineValues(values []any) (list []any) {
	for i := range t.columns {
		if inLine(&t.columns[i]) {
			list = append(list, values[i])
		}
	}
	return list
}

// makeRun makes a run as it was.
func (im *importing) makeRun(agent *ledger.AgentRow, a *agentSeen, r *runSeen) error {
	return im.each(runs, r.ID, func(values []any) error {
		report, err := im.screenRow(a, r, runs, values, "its goal or another text of it")
		if err != nil {
			return err
		}
		if err := im.mapRefs(agent, runs, values); err != nil {
			return err
		}
		im.disown(values, r)
		var uid any
		if k, is := im.kept.Runs[[2]string{agent.Name, r.Base}]; is {
			uid, values[runs.place("epoch")] = k.UID, k.Epoch
		}
		var id int64
		row := runs.lineValues(values)
		if err := im.tx.InsertGet(&id, insertRuns, append([]any{agent.ID, r.called, r.LastSeq, uid}, row...)...); err != nil {
			return err
		}
		im.report.Runs++
		if r.run, err = im.tx.RunByID(id); err != nil {
			return err
		}
		if err := im.tx.IndexRun(id); err != nil {
			return err
		}
		if runs.text(values, "source") != "" && !r.Ended { // nobody will say that it is over
			err := im.tx.Insert(`INSERT INTO observed (run_id, ends_at, told_ns, last_at, failed) VALUES (?1, ?2, 0, ?2, 0)`, id, im.tx.Now)
			if err != nil {
				return err
			}
		}
		return report()
	})
}

// disown removes a run's process if it belongs to another user. Otherwise a user could name any
// process, and so make a run look alive forever, or learn when another user's process ends.
func (im *importing) disown(values []any, r *runSeen) {
	t := runs
	p := liveness.Process{PID: int(t.whole(values, "pid")), Start: t.text(values, "process_start"), Boot: t.text(values, "boot_id")}
	if p.PID == 0 || im.scope.Admin || im.Opt.Processes.Alive(p) != liveness.Alive {
		return
	}
	if whose := im.Opt.Processes.Owner(p.PID); whose == "" || whose == im.scope.Caller.Owner {
		return
	}
	r.disowned = true
	for _, name := range []string{"pid", "process_start", "boot_id"} {
		values[t.place(name)] = nil
	}
}

// target finds the agent, or makes it as it was, with the policy byte for byte.
func (im *importing) target(a *agentSeen) (*ledger.AgentRow, error) {
	owner := im.scope.Whose()
	agent, err := im.Agent(im.tx, owner, a.target)
	if err != nil || agent != nil {
		return agent, err
	}
	policy, err := im.policyOf(a)
	if err == nil && im.Opt.Drift != nil {
		err = im.Opt.Drift.Check(&policy)
	}
	if err != nil {
		return nil, err
	}
	own, err := im.PolicyOver(im.tx, owner, a.policy)
	if err != nil {
		return nil, err
	}
	if owner == ckpt.AllOwners {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "an agent belongs to one owner: name one, not %s", ckpt.AllOwners)
	}
	e := ledger.Entry(im.scope, "set_policy", a.target)
	e.Detail = map[string]any{"policy": json.RawMessage(a.policy)}
	if err := im.InsertAgent(im.tx, owner, a.target, "", a.createdAt, string(a.policy), string(own), a.policyAt, policy); err != nil {
		return nil, err
	}
	if err := im.tx.Audit(e); err != nil {
		return nil, err
	}
	return im.Agent(im.tx, owner, a.target)
}

// policyOf is the policy that an agent will have: the one that counted in its source, or, if that
// was empty, the new owner's policy for all agents.
func (im *importing) policyOf(a *agentSeen) (ckpt.Policy, error) {
	if string(a.policy) == "{}" {
		return im.BasePolicy(im.tx, im.scope.Whose())
	}
	return wellformed.ParsePolicy(a.policy)
}

// mapRefs replaces the ids of the file with the ids that the same things have here.
func (im *importing) mapRefs(agent *ledger.AgentRow, t *table, values []any) error {
	for i := range t.columns {
		c := &t.columns[i]
		id, is := values[i].(string)
		if !is || !c.isRef && !c.isOwn {
			continue
		}
		var err error
		if c.isRef {
			values[i], err = im.here(agent, id)
		} else {
			values[i], err = im.own(agent, id, `SELECT r.agent_id FROM `+t.name+` f JOIN runs r ON r.id = f.run_id WHERE f.id = ?`, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// here is the id that a checkpoint of the file has here: its own, unless another agent of the same
// owner has that id. A reference to a checkpoint that does not exist stays as it is.
func (im *importing) here(agent *ledger.AgentRow, id string) (string, error) {
	return im.idHere(agent, id, `SELECT r.agent_id`+ledger.OwnedTables+`?`, id, agent.Owner)
}

// own is idHere for the id of a row of the file itself, which the report names if it is another one here.
// Another row of the agent may not have it.
func (im *importing) own(agent *ledger.AgentRow, id, query string, args ...any) (string, error) {
	to, whose := id, int64(0)
	found, err := im.tx.Get(&whose, query, args...)
	if err == nil && found && whose != agent.ID {
		to = otherID(id, agent)
		im.ids[id] = to
		args[0] = to
		found, err = im.tx.Get(&whose, query, args...)
	}
	if err == nil && found {
		err = ckpt.Errorf(ckpt.CodeConflict, "agent %s already has %s in another run: "+
			"import into another agent with --agent; nothing was imported", agent.Name, to)
	}
	if err == nil && to != id {
		if im.report.Renamed == nil {
			im.report.Renamed = map[string]string{}
		}
		im.report.Renamed[id] = to
	}
	return to, err
}

func (im *importing) idHere(agent *ledger.AgentRow, id, query string, args ...any) (string, error) {
	if to, known := im.ids[id]; known {
		return to, nil
	}
	var whose int64
	found, err := im.tx.Get(&whose, query, args...)
	if err != nil || !found || whose == agent.ID {
		return id, err
	}
	im.ids[id] = otherID(id, agent)
	return im.ids[id], nil
}

// otherID makes the id that an agent's item gets if another agent has an item with id: the same
// time, and the rest from a hash, so that the next import finds it again.
func otherID(id string, agent *ledger.AgentRow) string {
	var u uuid.UUID
	sum := sha256.Sum256([]byte(id + " " + agent.Owner + " " + agent.Name))
	copy(u[:], sum[:])
	if from, err := uuid.Parse(id); err == nil {
		copy(u[:6], from[:6])
	}
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	return u.String()
}

// settle makes a run ready to continue, unless the file does not contain all of it.
func (im *importing) settle(agent *ledger.AgentRow, a *agentSeen, r *runSeen) error {
	tx, run := im.tx, r.run
	err := tx.Exec(`UPDATE runs SET removed = ?, stored_bytes = ? WHERE id = ?`, run.Removed, run.StoredBytes, run.ID)
	if err != nil {
		return err
	}
	err = tx.Exec(`UPDATE checkpoints SET suspect = 1 WHERE run_id = ?1 AND suspect = 0 AND EXISTS (SELECT 1 FROM suspicions f WHERE f.run_id = ?1
		AND checkpoints.seq > f.since_seq
		AND checkpoints.seq <= coalesce(f.until_seq, checkpoints.seq))`, run.ID)
	if err != nil {
		return err
	}
	why, err := im.doubt(agent, r)
	if err != nil {
		return err
	}
	if why != "" && !r.Ended {
		im.report.Uncertain = append(im.report.Uncertain, ckpt.UncertainRun{Agent: agent.Name, Run: run.Name, Reason: why})
		err := tx.Insert(`INSERT INTO operations (run_id, key, attempt, name, status, started_at, ended_at)
			SELECT ?1, ?2, 1 + coalesce(max(attempt), 0), ?3, 'uncertain', ?4, ?4 FROM operations WHERE run_id = ?1 AND key = ?2`,
			run.ID, doubtKey, why, tx.Now)
		if err != nil {
			return err
		}
	}
	e := ledger.Entry(im.scope, "import_run", agent.Name)
	e.Run = run.Name
	e.Detail = map[string]any{"from_owner": a.owner, "checkpoints": r.LastSeq - run.Removed, "status": run.Status}
	if why != "" {
		e.Detail["uncertain"] = why
	}
	if err := tx.Audit(e); err != nil {
		return err
	}
	im.ForgetPast(run.ID)
	gone, err := im.RetainRun(tx, agent, run, ledger.Entry(im.scope, "import", agent.Name))
	im.report.Pruned = append(im.report.Pruned, gone...)
	if err != nil || !tx.Trusted.IsZero() {
		return err
	}
	// While ages are not judged, old checkpoints stay. The new time of the run's last change shows
	// that.
	return tx.Exec(`UPDATE runs SET updated_at = ?1 WHERE id = ?2 AND EXISTS (SELECT 1 FROM checkpoints
		WHERE run_id = ?2 AND kind = 'recovery' AND created_at < ?3)`,
		tx.Now, run.ID, ckpt.At(tx.Now.Add(-time.Duration(agent.Settings.RecoveryKeep))))
}

// doubtKey is the key of the uncertain operation of a run that the file does not contain completely. Such a run cannot
// be resumed without a person's decision.
const doubtKey = "ckptsidecar.import"

// doubt says what the file does not contain about a run that had not ended, "" if nothing is
// missing. It becomes the name of an operation, so it must fit "find out whether … took effect".
func (im *importing) doubt(agent *ledger.AgentRow, r *runSeen) (why string, err error) {
	var fork string
	if from := ledger.ForkWithout(r.run); from != "" {
		var there bool
		_, err := im.tx.Get(&there, `SELECT EXISTS (SELECT 1 FROM checkpoints c JOIN runs r ON r.id = c.run_id
			WHERE c.id = ? AND r.agent_id = ?)`, from, agent.ID)
		if err != nil {
			return "", err
		}
		if !there {
			fork = string(from)
			if err := im.tx.Exec(`UPDATE runs SET forked_from = NULL, head = NULL WHERE id = ?`, r.run.ID); err != nil {
				return "", err
			}
		}
	}
	_, shipped := im.kept.Runs[[2]string{agent.Name, r.Base}] // the run comes from a fleet, and nobody has exported it
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

var insertRuns = `INSERT INTO runs (id, agent_id, name, removed, uid, ` + runs.list("", inLine) + `) VALUES (` + ledger.NextRun +
	`, ?, ?, ?, ?` + strings.Repeat(", ?", len(runs.lineValues(make([]any, len(runs.columns))))) + `) RETURNING id`
