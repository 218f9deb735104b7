package db

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Save puts a state on disk. It answers once the transaction that holds it has
// been flushed, and everything that the save implies with it: the pruning of
// its run, the idempotency key, the audit rows.
func (s *saves) Save(ctx context.Context, sc ckpt.Scope, r *ckpt.SaveRequest) (*ckpt.Saved, error) {
	if err := wellformed.SaveRest(r); err != nil {
		return nil, err
	}
	v, err := s.newSave(ctx, sc, r)
	if err != nil {
		return nil, err
	}
	defer v.leave()
	err = s.write(&op{owner: sc.Caller.Owner, size: int64(len(r.State)), entry: v.entry, apply: func(tx *tx) error {
		return s.save(tx, v)
	}})
	if err != nil {
		return nil, err
	}
	return v.saved, nil
}

// save is one save on its way: what was asked, made ready outside the writer.
type save struct {
	watchedSave
	scope     ckpt.Scope
	state     encoded
	key       string // the idempotency key: the client's, or its id
	print     string
	program   any
	operation ckpt.Ref         // the key of the operation that it is taken for
	secrets   []secrets.Secret // what in the state looks like one
	id        string           // made here, where the client made none
	entry     auditEntry
	leave     func() // lets the next save of the run begin; to be called when this one is done

	saved *ckpt.Saved
}

// newSave does all of a save that needs no transaction. It waits until no other
// of the run is on its way, so that each stands on the one before.
func (s *saves) newSave(ctx context.Context, sc ckpt.Scope, r *ckpt.SaveRequest) (_ *save, err error) {
	r, beside, err := s.screenSave(sc, r)
	if err != nil {
		return nil, err
	}
	v := &save{watchedSave: watchedSave{request: r}, scope: sc, key: r.IdempotencyKey, entry: entry(sc, "save", r.Agent)}
	v.entry.Run, v.entry.Subject = runName(r.Run), r.ID
	if r.ID != "" {
		v.key = r.ID
	}
	if err := v.encodeProgram(); err != nil {
		return nil, err
	}
	key := runKey{sc.Whose(), r.Agent, runName(r.Run)}
	if v.leave, err = s.live.enter(key, len(r.State), s.opt.WriteTimeout); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			v.leave()
		}
	}()
	if v.state, v.secrets, err = s.prepare(key, sc, r); err != nil {
		return v, err
	}
	v.secrets = append(v.secrets, beside...)
	if v.drift, err = s.printState(ctx, key, r, &v.state); err != nil || v.key == "" {
		return v, err
	}
	v.print, err = fingerprint([]any{"save", runName(r.Run), r.Kind, r.Parent, r.Step, r.Labels, string(r.Metadata), v.program, r.ContentType, v.state.sent})
	return v, err
}

// screenSave answers the request as it is to be stored, but for the state, and
// what was found beside that.
func (s *saves) screenSave(sc ckpt.Scope, r *ckpt.SaveRequest) (*ckpt.SaveRequest, []secrets.Secret, error) {
	if len(r.Labels) == 0 && len(r.Metadata) == 0 && r.Program == nil {
		return r, nil, nil
	}
	clean := *r
	c := s.screen(sc, r.Agent, "checkpoint")
	c.labels(&clean.Labels)
	clean.Metadata = c.value("metadata", r.Metadata, true)
	if r.Program != nil {
		before := len(c.found)
		c.value("program", []byte(r.Program.Source), false)
		if len(c.found) > before && c.mode == ckpt.SecretsRedact {
			c.refuse(" a program cannot be changed, because its offset counts bytes;")
		}
	}
	return &clean, c.found, c.err
}

// encodeProgram makes the program ready for its column.
func (v *save) encodeProgram() error {
	if v.request.Program == nil {
		return nil
	}
	text, err := json.Marshal(v.request.Program)
	v.program = string(text)
	return err
}

// save is one save inside the writer's transaction. It refuses before it
// changes anything, except that it may have made the agent and the run.
func (s *saves) save(tx *tx, v *save) (err error) {
	v.saved = nil
	defer func() {
		if err != nil || v.saved == nil || v.saved.Replayed {
			s.unsee(tx, &v.watchedSave)
		}
	}()
	agent, err := s.agent(tx, v.scope.Whose(), v.request.Agent)
	if err != nil {
		return err
	}
	if agent != nil {
		if done, err := s.saveHot(tx, v, agent); done || err != nil {
			return err
		}
		if replayed, err := s.replaySave(tx, v, agent); err != nil {
			return err
		} else if replayed {
			v.saved.Drift, err = s.verdictFor(tx, agent, runName(v.request.Run))
			return err
		}
	}
	if err := s.admit(tx, v); err != nil {
		return err
	}
	agent, run, err := s.runToSave(tx, v, agent)
	if err != nil {
		return err
	}
	if err := s.revive(tx, run, v.scope); err != nil {
		return err
	}
	reply, err := s.insertCheckpoint(tx, v, agent, run)
	if err != nil {
		return err
	}
	v.saved = v.answer(agent, reply)
	if v.saved.Drift, err = s.verdictFor(tx, agent, run.Name); err != nil {
		return err
	}
	return tx.rememberText(agent.ID, v.key, v.print, appendReply(nil, &reply))
}

func (s *saves) replaySave(tx *tx, v *save, agent *agentRow) (bool, error) {
	var reply savedReply
	found, err := tx.replayed(agent.ID, v.key, v.print, &reply)
	if found && err == nil {
		v.saved = v.answer(agent, reply)
		v.saved.Replayed = true
	}
	return found, err
}

// runToSave finds the agent and its run, or makes them, and checks the fence
// and the parent first.
func (s *saves) runToSave(tx *tx, v *save, agent *agentRow) (*agentRow, *runRow, error) {
	var run *runRow
	var err error
	if agent != nil {
		if run, err = tx.run(agent.ID, runName(v.request.Run)); err != nil {
			return nil, nil, err
		}
	}
	if err := v.mayFollow(tx, agent, run); err != nil {
		return nil, nil, err
	}
	if agent == nil {
		if agent, err = s.makeAgent(tx, v.scope.Whose(), v.request.Agent); err != nil {
			return nil, nil, err
		}
	}
	if run == nil {
		run, err = tx.makeRun(agent.ID, runName(v.request.Run))
	}
	return agent, run, err
}

// mayFollow refuses a writer that was fenced off, a parent that is not there,
// and an id that is taken.
func (v *save) mayFollow(tx *tx, agent *agentRow, run *runRow) error {
	if run != nil {
		if err := run.mayWrite(v.request.Epoch); err != nil {
			return err
		}
	}
	if v.request.Parent != "" {
		if err := checkParent(tx, agent, string(v.request.Parent)); err != nil {
			return err
		}
	}
	if v.request.ID == "" {
		return nil
	}
	var taken bool
	if _, err := tx.get(&taken, `SELECT EXISTS (SELECT 1 FROM checkpoints WHERE id = ?)`, v.request.ID); err != nil {
		return err
	}
	if taken { // by another agent, or by this one so long ago that the key is forgotten
		return ckpt.Errorf(ckpt.CodeIdempotencyMismatch, "the id %s is taken: make a new UUID of version 7 for each save", v.request.ID)
	}
	return nil
}

func checkParent(tx *tx, agent *agentRow, parent string) error {
	if agent != nil {
		var mine bool
		_, err := tx.get(&mine, `SELECT EXISTS (SELECT 1 FROM checkpoints c JOIN runs r ON r.id = c.run_id WHERE c.id = ? AND r.agent_id = ?)`, parent, agent.ID)
		if err != nil || mine {
			return err
		}
	}
	return ckpt.Errorf(ckpt.CodeNotFound, "the parent %s is not a checkpoint of this agent", parent)
}

// insertCheckpoint writes the row, the state, the audit row, and what follows
// for the run.
func (s *saves) insertCheckpoint(tx *tx, v *save, agent *agentRow, run *runRow) (savedReply, error) {
	reply, err := v.begin(tx, run)
	if err != nil {
		return reply, err
	}
	w, err := s.watchRun(tx, agent, run, v.pastOf())
	if err != nil {
		return reply, err
	}
	s.seeSave(tx, &v.watchedSave, v.state.size, agent, run, w, reply)
	if err := s.insertSaved(tx, v, agent, run, w, reply); err != nil {
		return reply, err
	}
	if err := tx.noteSaved(run); err != nil {
		return reply, err
	}
	all, err := s.foundInSave(tx, &v.watchedSave, agent, run, w, reply)
	if err != nil {
		return reply, err
	}
	reply.Suspect = w.covers(reply.Seq)
	reply.Pruned, err = s.retainSaved(tx, agent, run, reply.Seq, v.request.Kind, all, v.entry)
	return reply, err
}

// begin decides what a save's answer will be, but for what is pruned.
func (v *save) begin(tx *tx, run *runRow) (savedReply, error) {
	r := v.request
	reply := savedReply{ID: r.ID, Seq: run.LastSeq + 1, Parent: r.Parent, CreatedAt: tx.now, StoredSize: v.state.stored(), Pruned: []string{}}
	if reply.ID == "" {
		if v.id == "" {
			id, err := uuid.NewV7()
			if err != nil {
				return reply, err
			}
			v.id = id.String()
		}
		reply.ID = v.id
	}
	if reply.Parent == "" {
		reply.Parent = run.Head
	}
	return reply, nil
}

// insertSaved writes the row, the state, the audit row and the findings.
func (s *saves) insertSaved(tx *tx, v *save, agent *agentRow, run *runRow, w *watched, reply savedReply) error {
	r := v.request
	row := checkpointRow{
		N: tx.head.n + 1, ID: reply.ID, Seq: reply.Seq, Kind: r.Kind, Parent: reply.Parent, CreatedAt: reply.CreatedAt,
		ContentType: r.ContentType, Labels: r.Labels, Metadata: metadataText(r.Metadata), Step: r.Step, Operation: v.operation, program: v.program,
		Suspect: w.drifting(),
	}
	list, err := tx.insertRow(run, &row, &v.state)
	if err != nil {
		return err
	}
	s.keepLive(tx, runKey{agent.Owner, agent.Name, run.Name}, run.ID, &row, &v.state, list)
	if err := auditSave(tx, v, &row); err != nil {
		return err
	}
	s.share(tx, agent, run, v.shared(), &row)
	return s.reportSecrets(tx, agent, run, w, reply.ID, v.secrets)
}

func auditSave(tx *tx, v *save, row *checkpointRow) error {
	e := v.entry
	e.Subject = row.ID
	labels, err := labelsHash(row.Labels)
	if err != nil {
		return err
	}
	if labels != "" {
		labels = `"labels":"` + labels + `",`
	}
	e.detail = fmt.Sprintf(`{"kind":"%s",%s"rest":"%s","seq":%d,"sha256":"%s","size":%d}`, row.Kind, labels, row.rest(), row.Seq, v.state.sha256, v.state.size)
	return tx.audit(e)
}

// answer puts the checkpoint together from what was asked and what was decided.
func (v *save) answer(agent *agentRow, reply savedReply) *ckpt.Saved {
	r := v.request
	return &ckpt.Saved{Pruned: reply.Pruned, AsSent: !v.state.redacted, Checkpoint: ckpt.Checkpoint{
		ID: reply.ID, Agent: agent.Name, Owner: agent.Owner, Run: runName(r.Run), Seq: reply.Seq, Kind: r.Kind, Parent: reply.Parent,
		CreatedAt: reply.CreatedAt, Size: v.state.size, StoredSize: reply.StoredSize, SHA256: v.state.sha256, ContentType: r.ContentType,
		Labels: r.Labels, Metadata: json.RawMessage(metadataText(r.Metadata)), Program: r.Program, Step: r.Step, Suspect: reply.Suspect,
	}}
}

// appendReply is what json.Marshal writes of a save's reply.
func appendReply(b []byte, r *savedReply) []byte {
	b = appendString(append(b, `{"id":`...), r.ID)
	b = strconv.AppendInt(append(b, `,"seq":`...), r.Seq, 10)
	b = appendRef(append(b, `,"parent":`...), r.Parent)
	b = appendTime(append(b, `,"created_at":`...), r.CreatedAt)
	b = strconv.AppendInt(append(b, `,"stored_size":`...), r.StoredSize, 10)
	if r.Suspect {
		b = append(b, `,"suspect":true`...)
	}
	b = append(b, `,"pruned":[`...)
	for i, id := range r.Pruned {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, id)
	}
	return append(b, "]}"...)
}

// saves take checkpoints.
type saves struct {
	*drifts
}
