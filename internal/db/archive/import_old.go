package archive

import (
	"context"
	"encoding/json"
	"errors"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// An export of version 1 has an agent's policy and its checkpoints, and nothing about what its runs
// were doing. If a run exists, the checkpoints join it as history. If the import makes the run, a
// person must decide about it.

// oldDoubt says what is not known of a run of such an export.
const oldDoubt = "anything that this run did beside its checkpoints (its export is of version 1, which holds nothing else)"

// checkOldCheckpoint checks one checkpoint in the way that a save is checked, and that its state is
// the one that was exported.
func checkOldCheckpoint(line *exportLine) error {
	r, c, err := line.request("x")
	if err == nil {
		err = wellformed.Save(r)
	}
	if err == nil {
		err = ckpt.CheckID(c.ID) // a save may have no id
	}
	if err == nil && c.Operation != "" {
		err = ckpt.CheckKey("operation", string(c.Operation))
	}
	if err == nil && c.CreatedAt.IsZero() {
		err = errors.New("created_at is missing")
	}
	if err == nil && blob.HashOf(r.State) != c.SHA256 {
		err = errors.New("the state does not match its sha256")
	}
	return err
}

// request is the save that corresponds to a line of version 1.
func (l *exportLine) request(agent string) (*ckpt.SaveRequest, *ckpt.Checkpoint, error) {
	c := l.Checkpoint
	if l.Type != lineCheckpoint || c == nil {
		return nil, nil, errors.New("it is not a checkpoint")
	}
	state, err := l.state()
	if err != nil {
		return nil, nil, err
	}
	return &ckpt.SaveRequest{ID: c.ID, Agent: agent, Run: c.Run, Kind: c.Kind, Parent: c.Parent, Step: c.Step, Labels: c.Labels, Metadata: c.Metadata,
		Program: c.Program, ContentType: c.ContentType, State: state}, c, nil
}

// oldCheckpoint is one checkpoint that is being imported.
type oldCheckpoint struct {
	request *ckpt.SaveRequest
	from    *ckpt.Checkpoint
	state   blob.Encoded
}

// old imports an export of version 1.
func (im *importing) old(ctx context.Context) (*ckpt.ImportReport, error) {
	var batch []oldCheckpoint
	var size int64
	save := func() error {
		list := batch
		batch, size = nil, 0
		im.batch = append(im.batch, func(tx *ledger.Tx) error { return im.saveOld(tx, list) })
		return im.flush(ctx)
	}
	err := im.contents.each(im.aside, func(l *exportLine, a *agentSeen) error {
		if l.Type != lineCheckpoint {
			return nil
		}
		r, c, err := l.request(a.target)
		if err != nil {
			return err
		}
		batch = append(batch, oldCheckpoint{r, c, blob.Encode(r.State)})
		size += int64(len(r.State))
		im.size = size
		if len(batch) < importAtOnce && size < importBytesAtOnce {
			return nil
		}
		return save()
	})
	if err == nil {
		err = save()
	}
	if err != nil {
		return nil, err
	}
	im.tellRenamed()
	return &im.report, nil
}

// saveOld imports some checkpoints in one transaction that leaves no run with more checkpoints than
// its policy allows.
func (im *importing) saveOld(tx *ledger.Tx, batch []oldCheckpoint) error {
	agent, err := im.target(tx, im.contents.agents[0])
	if err != nil {
		return err
	}
	heads := map[int64]ckpt.Ref{}
	for i := range batch {
		if err := im.oneOld(tx, agent, &batch[i], heads); err != nil {
			return err
		}
	}
	return im.settleOld(tx, agent, heads)
}

func (im *importing) oneOld(tx *ledger.Tx, agent *ledger.AgentRow, c *oldCheckpoint, heads map[int64]ckpt.Ref) error {
	id, present, err := im.idForOld(tx, agent, c)
	if err != nil || present {
		return err
	}
	run, err := im.runForOld(tx, agent, ledger.RunName(c.request.Run))
	if err != nil {
		return err
	}
	if _, seen := heads[run.ID]; !seen {
		heads[run.ID] = run.Head
	}
	row := ledger.CheckpointRow{N: tx.Head.N + 1, ID: id, Seq: run.LastSeq + 1, Kind: c.request.Kind, Parent: im.oldParent(c.from.Parent),
		CreatedAt: c.from.CreatedAt, ContentType: c.request.ContentType, Labels: c.request.Labels, Metadata: ledger.MetadataText(c.request.Metadata),
		Step: c.request.Step, Operation: c.from.Operation, Pinned: c.from.Pinned, Suspect: c.from.Suspect}
	if c.request.Program != nil {
		text, err := json.Marshal(c.request.Program)
		if err != nil {
			return err
		}
		row.Program = string(text)
	}
	if err := driftlog.SuspectIfDrifting(tx, run, &row); err != nil {
		return err
	}
	if err := tx.Insert(run, &row, &c.state); err != nil {
		return err
	}
	if row.ContentType == ckpt.ContentTypeGraph {
		if err := im.store.graphImported(tx, agent, run, row.Seq, c.request.State); err != nil {
			return err
		}
	}
	im.store.ForgetPast(run.ID) // its history has changed
	im.report.Imported++
	return im.auditCheckpoint(tx, agent, run, &row, &c.state, im.contents.agents[0].owner, c.from.Seq)
}

// runForOld finds a run, or makes it and leaves it in doubt.
func (im *importing) runForOld(tx *ledger.Tx, agent *ledger.AgentRow, name string) (*ledger.RunRow, error) {
	run, err := tx.Run(agent.ID, name)
	if err != nil || run != nil {
		return run, err
	}
	if run, err = tx.MakeRun(agent.ID, name, nil); err != nil {
		return nil, err
	}
	im.report.Runs++
	return run, im.leaveInDoubt(tx, agent.Name, run, 1, oldDoubt)
}

func (im *importing) oldParent(id ckpt.Ref) ckpt.Ref {
	if to, ok := im.ids[string(id)]; ok {
		return ckpt.Ref(to)
	}
	return id
}

// idForOld returns the id under which a checkpoint is imported, and whether it exists already. An
// id that another agent has is replaced.
func (im *importing) idForOld(tx *ledger.Tx, agent *ledger.AgentRow, c *oldCheckpoint) (id string, present bool, err error) {
	id = string(im.oldParent(ckpt.Ref(c.from.ID)))
	var there struct {
		AgentID int64  `db:"agent_id"`
		SHA256  string `db:"sha256"`
	}
	found, err := tx.Get(&there, `SELECT r.agent_id, c.sha256`+ledger.OwnedTables+`?`, id, agent.Owner)
	switch {
	case err != nil:
		return "", false, err
	case !found:
		return id, false, nil
	case there.AgentID == agent.ID && there.SHA256 == c.state.Sha256:
		im.report.Present++
		return id, true, nil
	case there.AgentID == agent.ID:
		return "", false, ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s already exists with another state: "+
			"import into another agent with --agent", id)
	}
	im.ids[c.from.ID] = otherID(c.from.ID, agent)
	im.contents.has[c.from.ID] = true
	return im.idForOld(tx, agent, c)
}

// settleOld leaves each run with the head that it had, if it had one, and with no more checkpoints
// than its policy allows.
func (im *importing) settleOld(tx *ledger.Tx, agent *ledger.AgentRow, heads map[int64]ckpt.Ref) error {
	for id, head := range heads {
		run, err := tx.RunByID(id)
		if err != nil {
			return err
		}
		if head != "" {
			run.Head = head
			if err := tx.Exec(`UPDATE runs SET head = ? WHERE id = ?`, head, id); err != nil {
				return err
			}
		}
		gone, err := im.store.RetainRun(tx, agent, run, ledger.Entry(im.scope, "import", agent.Name))
		if err != nil {
			return err
		}
		im.report.Pruned = append(im.report.Pruned, gone...)
	}
	return nil
}
