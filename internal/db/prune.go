package db

import (
	"context"
	"errors"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// pruning is one application of policies to runs, inside a transaction.
type pruning struct {
	store *Store
	tx    *ledger.Tx
	plan  retention.Func
	now   time.Time
	limit int // removals; 0 for no limit
	dry   bool
	who   func(agent *ledger.AgentRow) ledger.AuditEntry

	removed []ckpt.Removal
	listed  map[inAgent]bool // of a dry run: the checkpoints in removed
}

// inAgent names a checkpoint. Two owners can have the same ids.
type inAgent struct {
	agent int64
	id    string
}

var errLimit = errors.New("the limit of one transaction is reached")

func (p *pruning) runs(ids []int64) error {
	for _, id := range ids {
		if err := p.run(id); err != nil {
			if errors.Is(err, errLimit) {
				return nil
			}
			return err
		}
		p.tx.GotOn()
	}
	return nil
}

func (p *pruning) run(id int64) error {
	run, agent, err := p.store.RunWithAgent(p.tx, id)
	if err != nil || run == nil {
		return err
	}
	rows, err := p.tx.History(run.ID)
	if err != nil {
		return err
	}
	needs, err := p.tx.NeedsOf(run)
	if err != nil {
		return err
	}
	return p.apply(agent, run, rows, ledger.Judge(p.plan, agent.Settings, p.now, run, rows, &needs))
}

// apply removes what the verdicts say, oldest first, up to the limit.
func (p *pruning) apply(agent *ledger.AgentRow, run *ledger.RunRow, rows []ledger.HeldRow, verdicts []retention.Verdict) error {
	var gone []ledger.HeldRow
	var reasons []string
	full := false
	for i := len(verdicts) - 1; i >= 0 && !full; i-- {
		if !verdicts[i].Remove {
			continue
		}
		gone, reasons = append(gone, rows[i]), append(reasons, verdicts[i].Reason)
		p.removed = append(p.removed, removal(agent, run, &rows[i], verdicts[i].Reason))
		if p.dry {
			p.listed[inAgent{agent.ID, rows[i].ID}] = true
		}
		full = p.limit > 0 && !p.dry && len(p.removed) >= p.limit
	}
	if len(gone) > 0 && !p.dry {
		if _, err := p.store.Remove(p.tx, agent, run, gone, reasons, p.who(agent)); err != nil {
			return err
		}
	}
	if full {
		return errLimit
	}
	return nil
}

// budgets removes what agents have stored beyond max_bytes of their policies. agentID is 0 for all
// agents of the owner.
func (p *pruning) budgets(owner string, agentID int64) error {
	var ids []int64
	err := p.tx.List(&ids, `SELECT id FROM agents WHERE (owner = ?1 OR ?1 = '*') AND (?2 = 0 OR id = ?2)
		AND json_extract(policy, '$.max_bytes') > 0 ORDER BY id`, owner, agentID)
	if err != nil {
		return err
	}
	for _, id := range ids {
		for { // sizes are estimates: the first removals may not be enough
			over, err := p.store.overBy(p.tx, id)
			if err != nil {
				return err
			}
			if over <= 0 {
				break
			}
			before := len(p.removed)
			err = p.trim(id, over, func(runs []retention.History, over int64) ([]retention.Verdict, int64) {
				return retention.BudgetWithout(runs, over, func(checkpoint string) bool { return p.listed[inAgent{id, checkpoint}] })
			})
			if err != nil {
				return err
			}
			if p.dry || len(p.removed) == before {
				break
			}
		}
	}
	return nil
}

func removal(agent *ledger.AgentRow, run *ledger.RunRow, row *ledger.HeldRow, reason string) ckpt.Removal {
	return ckpt.Removal{
		Checkpoint: row.ID, Agent: agent.Name, Run: run.Name, Kind: row.Kind, Seq: row.Seq,
		StoredSize: row.StoredSize, Reason: reason,
	}
}

// Prune applies the policies of one agent, or of all of the owner's agents, now.
func (s *Store) Prune(ctx context.Context, sc ckpt.Scope, r ckpt.PruneRequest, key string) (*ckpt.PruneReport, bool, error) {
	agentID := int64(0)
	if r.DryRun {
		s.AuditForeign(sc, "read_prune", r.Agent, "")
	}
	if r.Agent != "" {
		agent, err := s.FindAgent(ctx, sc, r.Agent)
		if err != nil {
			if !r.DryRun {
				s.RefusedBefore(ledger.Entry(sc, "prune", r.Agent), err)
			}
			return nil, false, err
		}
		agentID = agent.ID
	} else if key != "" {
		key = sc.Caller.Owner + " " + key // it belongs to no agent: the owner keeps it apart from others' keys
	}
	print, err := ledger.Fingerprint([]any{"prune", sc.Whose(), r})
	if err != nil {
		return nil, false, err
	}
	var rep *ckpt.PruneReport
	var replayed bool
	e := ledger.Entry(sc, "prune", r.Agent)
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Size: 1, Claim: sqlite.Frees, Entry: e, Do: func(tx *ledger.Tx) error {
		rep = &ckpt.PruneReport{}
		if replayed, err = tx.Replayed(agentID, key, print, rep); replayed || err != nil {
			return err
		}
		return s.prune(tx, sc, r, agentID, key, print, rep)
	}})
	return rep, replayed, err
}

func (s *Store) prune(tx *ledger.Tx, sc ckpt.Scope, r ckpt.PruneRequest, agentID int64, key, print string, rep *ckpt.PruneReport) error {
	var ids []int64
	err := tx.List(&ids, `SELECT r.id FROM runs r JOIN agents a ON a.id = r.agent_id
		WHERE (a.owner = ?1 OR ?1 = '*') AND (?2 = 0 OR a.id = ?2) ORDER BY r.id`, sc.Whose(), agentID)
	if err != nil {
		return err
	}
	p := &pruning{store: s, tx: tx, plan: s.Opt.Retention, now: tx.Trusted.Time, dry: r.DryRun, removed: []ckpt.Removal{}, listed: map[inAgent]bool{},
		who: func(agent *ledger.AgentRow) ledger.AuditEntry {
			e := ledger.Entry(sc, "remove", agent.Name)
			e.Owner = agent.Owner
			return e
		}}
	if err := p.runs(ids); err != nil {
		return err
	}
	if err := p.budgets(sc.Whose(), agentID); err != nil {
		return err
	}
	*rep = ckpt.PruneReport{DryRun: r.DryRun, Removed: p.removed, Guarded: tx.Trusted.IsZero()}
	if r.DryRun {
		return nil
	}
	e := ledger.Entry(sc, "prune", r.Agent)
	e.Detail = map[string]any{"removed": len(p.removed)}
	if err := tx.Audit(e); err != nil {
		return err
	}
	return tx.Remember(agentID, key, print, rep)
}
