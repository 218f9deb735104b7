package db

import (
	"cmp"
	"context"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// Chown gives all agents of an owner, or one agent, to another owner, in one transaction. It is for
// administrators. It is refused if the new owner has an agent of the same name, and, unless forced,
// while one of the runs has an owner that is alive. Each agent keeps its effective policy.
func (s *Store) Chown(ctx context.Context, sc ckpt.Scope, r ckpt.ChownRequest, key string) (*ckpt.Chowned, bool, error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	e := ledger.Entry(sc, "chown", r.Agent)
	e.Reason = r.Reason
	if !sc.Caller.Admin || sc.Target != "" {
		err := ckpt.Errorf(ckpt.CodeDenied, "only an administrator may give agents to another owner; name both owners in the body, not as owner")
		s.RefusedBefore(e, err)
		return nil, false, err
	}
	e.Owner = r.From
	if key != "" {
		key = sc.Caller.Owner + " " + key // it belongs to no agent: the owner keeps it apart from others' keys
	}
	print, err := ledger.Fingerprint([]any{"chown", r})
	if err != nil {
		return nil, false, err
	}
	if err := s.SettleOwner(ctx, r.From); err != nil { // until then it is not known whose the waiting spans are
		return nil, false, err
	}
	var done *ckpt.Chowned
	var replayed bool
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Entry: e, Do: func(tx *ledger.Tx) error {
		done = &ckpt.Chowned{}
		if replayed, err = tx.Replayed(0, key, print, done); replayed || err != nil {
			return err
		}
		*done = ckpt.Chowned{From: r.From, To: r.To, DryRun: r.DryRun, Agents: []ckpt.ChownedAgent{}}
		if err := s.chown(tx, r, e, done); err != nil {
			return err
		}
		return tx.Remember(0, key, print, done)
	}})
	if err != nil {
		return nil, false, err
	}
	if !r.DryRun && !replayed {
		s.Usage.RecountAfter(ctx, r.From)
		s.Usage.RecountAfter(ctx, r.To)
	}
	return done, replayed, nil
}

func (s *Store) chown(tx *ledger.Tx, r ckpt.ChownRequest, e ledger.AuditEntry, done *ckpt.Chowned) error {
	var agents []ledger.Given
	err := tx.List(&agents, `SELECT id, owner, name, policy, policy_own, coalesce(uid, '') AS uid FROM agents
		WHERE owner = ?1 AND (?2 = '' OR name = ?2) ORDER BY name`, r.From, r.Agent)
	if err != nil {
		return err
	}
	if err := s.mayChown(tx, r, agents); err != nil {
		return err
	}
	for i := range agents {
		moved, err := sizeOfAgent(tx, &agents[i])
		if err != nil {
			return err
		}
		done.Agents = append(done.Agents, moved)
	}
	if r.DryRun {
		e.Action = "admin_read_chown"
		return tx.Audit(e)
	}
	for i := range agents {
		a := &agents[i]
		if a.AgentRow, err = parsed(a.AgentRow); err != nil {
			return err
		}
		if err := s.GiveAgent(tx, a, r.To, e); err != nil {
			return err
		}
		s.Watches.DropAgent(r.From, a.Name)
		tx.OnCommit(func() {
			s.States.ForgetAgent(r.From, a.Name)
			s.Shared.ForgetAgent(r.From, a.Name)
			s.Files.ForgetAgent(&ledger.AgentRow{ID: a.ID, Owner: r.From, Name: a.Name})
			s.ForgetCalibrations(a.ID)
		})
		tx.GotOn()
	}
	tx.OnCommit(s.prompts.Tell) // every waiting caller must check again what it may see
	tx.OnCommit(s.events.Tell)
	return nil
}

func parsed(row ledger.AgentRow) (ledger.AgentRow, error) {
	p, err := row.Parsed()
	if err != nil {
		return row, err
	}
	return *p, nil
}

// mayChown refuses the request if the new owner would have two agents of one name or two
// checkpoints of one id, or if an agent still works.
func (s *Store) mayChown(tx *ledger.Tx, r ckpt.ChownRequest, agents []ledger.Given) error {
	if len(agents) == 0 {
		return ckpt.Errorf(ckpt.CodeNotFound, "%s has no agent %s: see who has agents with ckptsidecar agents --owner '*'",
			r.From, cmp.Or(r.Agent, "at all"))
	}
	var taken []string
	err := tx.List(&taken, `SELECT a.name FROM agents a JOIN agents b ON b.owner = ?2 AND b.name = a.name
		WHERE a.owner = ?1 AND (?3 = '' OR a.name = ?3) ORDER BY a.name`, r.From, r.To, r.Agent)
	if err != nil {
		return err
	}
	if len(taken) > 0 {
		return ckpt.Errorf(ckpt.CodeConflict,
			"%s already has an agent with the name %s: nothing was moved; "+
				"move the other agents one by one, or erase one of the two", r.To, someOf(taken))
	}
	for i := range agents {
		a := &agents[i]
		id, err := tx.OwnerHas(a.ID, r.To)
		if err != nil {
			return err
		}
		if id != "" {
			return ckpt.Errorf(ckpt.CodeConflict, "%s already has the checkpoint %s of agent %s, "+
				"perhaps by an import: nothing was moved", r.To, id, a.Name)
		}
		if r.Force {
			continue
		}
		if err := s.noneRuns(tx, a); err != nil {
			return err
		}
		tx.GotOn()
	}
	return nil
}

// noneRuns refuses an agent with a run whose owner is alive.
func (s *Store) noneRuns(tx *ledger.Tx, a *ledger.Given) error {
	var runs []ledger.RunRow
	err := tx.List(&runs, `SELECT `+ledger.RunColumns+
		` FROM runs WHERE agent_id = ? AND status = 'running' AND (pid IS NOT NULL OR heartbeat_timeout_ms > 0)`, a.ID)
	if err != nil {
		return err
	}
	for i := range runs {
		if s.OwnerAlive(&runs[i]) {
			return ckpt.Errorf(ckpt.CodeConflict, "run %s of agent %s has an owner that is %s: "+
				"nothing was moved; stop the agent, or force it",
				runs[i].Name, a.Name, s.lifeOfOwner(&runs[i]))
		}
	}
	return nil
}

func sizeOfAgent(tx *ledger.Tx, a *ledger.Given) (ckpt.ChownedAgent, error) {
	var row agentSizes
	_, err := tx.Get(&row, sizesOfAgent, a.ID)
	return ckpt.ChownedAgent{
		Agent: a.Name, Runs: row.Runs, Checkpoints: row.Checkpoints,
		StoredBytes: row.StoredBytes, FilesBytes: row.FilesBytes,
	}, err
}

// someOf names the first few of a list.
func someOf(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}
