package archive

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"os"
	"slices"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// importing is an import in progress.
type importing struct {
	store    *Archive
	scope    ckpt.Scope
	contents *contents
	aside    *os.File
	ids      map[string]string // of checkpoints, findings and prompts: the ids here, if they differ
	kept     Kept
	report   ckpt.ImportReport
	batch    []func(*ledger.Tx) error
	grown    map[int64]*agentSeen // runs that got checkpoints in this transaction
	rows     int
	size     int64
}

func (im *importing) tellRenamed() {
	for from, to := range im.ids {
		if from != to && im.contents.has[from] {
			if im.report.Renamed == nil {
				im.report.Renamed = map[string]string{}
			}
			im.report.Renamed[from] = to
		}
	}
}

// add queues a step of the import, and runs the queued steps if they are enough for a transaction.
// For a checkpoint, weight is such that importAtOnce of them fill a transaction.
func (im *importing) add(ctx context.Context, weight int, size int64, do func(*ledger.Tx) error) error {
	im.batch = append(im.batch, do)
	im.rows += weight
	im.size += size
	if im.rows < importRowsAtOnce && im.size < importBytesAtOnce {
		return nil
	}
	return im.flush(ctx)
}

func (im *importing) flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return sqlite.ReadError(err)
	}
	before := im.report
	e := ledger.Entry(im.scope, "import", im.report.Agent)
	err := im.store.Submit(&ledger.Op{Owner: im.scope.Caller.Owner, Size: im.size, Entry: e, Do: func(tx *ledger.Tx) error {
		im.report = before // the transaction may be tried again
		im.report.Pruned, im.report.Uncertain, im.report.Rows = slices.Clone(before.Pruned), slices.Clone(before.Uncertain), maps.Clone(before.Rows)
		im.grown = map[int64]*agentSeen{}
		for _, do := range im.batch {
			if err := do(tx); err != nil {
				return err
			}
		}
		return im.retain(tx)
	}})
	im.batch, im.rows, im.size = nil, 0, 0
	return err
}

// target finds the agent, or makes it as it was.
func (im *importing) target(tx *ledger.Tx, a *agentSeen) (*ledger.AgentRow, error) {
	agent, err := im.store.Agent(tx, im.scope.Whose(), a.target)
	if err != nil || agent != nil {
		return agent, err
	}
	policy, err := im.policyOf(tx, a)
	if err == nil && im.store.Opt.Drift != nil {
		err = im.store.Opt.Drift.Check(&policy)
	}
	if err != nil {
		return nil, err
	}
	own, err := im.store.PolicyOver(tx, im.scope.Whose(), a.policy)
	if err != nil {
		return nil, err
	}
	e := ledger.Entry(im.scope, "set_policy", a.target)
	if err := im.makeAgent(tx, a, own, policy, e); err != nil {
		return nil, err
	}
	return im.store.Agent(tx, im.scope.Whose(), a.target)
}

// policyOf is the policy that an agent will have: the one that counted in its source, or, if that
// was empty, the new owner's policy for all agents.
func (im *importing) policyOf(tx *ledger.Tx, a *agentSeen) (ckpt.Policy, error) {
	if string(a.policy) == "{}" {
		return im.store.BasePolicy(tx, im.scope.Whose())
	}
	return wellformed.ParsePolicy(a.policy)
}

// makeAgent makes an agent with the times and the policy that it had, byte for byte.
func (im *importing) makeAgent(tx *ledger.Tx, a *agentSeen, own []byte, policy ckpt.Policy, e ledger.AuditEntry) error {
	if im.scope.Whose() == ckpt.AllOwners {
		return ckpt.Errorf(ckpt.CodeInvalid, "an agent belongs to one owner: name one, not %s", ckpt.AllOwners)
	}
	if err := im.store.InsertAgent(tx, im.scope.Whose(), a.target, im.kept.Agents[a.target], a.createdAt,
		string(a.policy), string(own), a.policyAt, policy); err != nil {
		return err
	}
	e.Detail = map[string]any{"policy": json.RawMessage(a.policy)}
	return tx.Audit(e)
}

// here is the id that a checkpoint of the file has here: its own, unless another agent of the same
// owner has that id. A reference to a checkpoint that does not exist stays as it is.
func (im *importing) here(tx *ledger.Tx, agent *ledger.AgentRow, id string) (string, error) {
	return im.idHere(tx, agent, id, `SELECT r.agent_id`+ledger.OwnedTables+`?`, id, agent.Owner)
}

// ownHere is the same as here for a finding or a prompt.
func (im *importing) ownHere(tx *ledger.Tx, agent *ledger.AgentRow, t *table, id string) (string, error) {
	query := `SELECT r.agent_id FROM findings f JOIN runs r ON r.id = f.run_id WHERE f.id = ?`
	if t.kind == linePrompt {
		query = `SELECT r.agent_id FROM prompts p JOIN runs r ON r.id = p.run_id WHERE p.id = ?`
	}
	return im.idHere(tx, agent, id, query, id)
}

func (im *importing) idHere(tx *ledger.Tx, agent *ledger.AgentRow, id, query string, args ...any) (string, error) {
	if to, known := im.ids[id]; known {
		return to, nil
	}
	var whose int64
	found, err := tx.Get(&whose, query, args...)
	if err != nil {
		return "", err
	}
	to := id
	if found && whose != agent.ID {
		to = otherID(id, agent)
	}
	im.ids[id] = to
	return to, nil
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

func (im *importing) auditCheckpoint(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow,
	row *ledger.CheckpointRow, state *blob.Encoded, owner string, seq int64) error {
	e := ledger.Entry(im.scope, "import", agent.Name)
	e.Run, e.Subject = run.Name, row.ID
	e.Detail = map[string]any{"from_owner": owner, "from_seq": seq}
	var err error
	if e.Save, err = tx.Facts(run, row, state, 0); err != nil {
		return err
	}
	return tx.Audit(e)
}

// leaveInDoubt marks a run so that a person must decide about it.
func (im *importing) leaveInDoubt(tx *ledger.Tx, agent string, run *ledger.RunRow, attempt int64, why string) error {
	im.report.Uncertain = append(im.report.Uncertain, ckpt.UncertainRun{Agent: agent, Run: run.Name, Reason: why})
	return tx.Exec(insertDoubt, run.ID, halfKey, attempt, why, tx.Now)
}

// The bounds of one transaction of an import.
const (
	importAtOnce      = 64
	importRowsAtOnce  = 1000
	importBytesAtOnce = 32 << 20
)

// The weights of the steps of a transaction.
const (
	weightRow        = 1
	weightCheckpoint = importRowsAtOnce / importAtOnce
)

// retain leaves no run that got checkpoints with more than its policy's counts allow. Ages are
// judged when the run is complete.
func (im *importing) retain(tx *ledger.Tx) error {
	for _, id := range slices.Sorted(maps.Keys(im.grown)) {
		agent, err := im.target(tx, im.grown[id])
		if err != nil {
			return err
		}
		if agent.Settings.RoutineKeep == 0 {
			continue
		}
		run, err := tx.RunByID(id)
		if err != nil {
			return err
		}
		gone, err := im.store.RetainRun(tx, agent, run, ledger.Entry(im.scope, "import", agent.Name))
		im.report.Pruned = append(im.report.Pruned, gone...)
		if err != nil {
			return err
		}
	}
	return nil
}

// The uncertain operation of a run that is not completely imported yet, or that the file does not
// contain completely. Such a run cannot be resumed without a person's decision.
const (
	halfKey     = "ckptsidecar.import"
	halfName    = "an import of this run that has not ended: do it again"
	insertDoubt = `INSERT INTO operations (run_id, key, attempt, name, status, started_at, ended_at) VALUES (?1, ?2, ?3, ?4, 'uncertain', ?5, ?5)`
)
