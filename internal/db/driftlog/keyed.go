package driftlog

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// KeyedRequest is a write with an idempotency key: a repeated request gets the first reply again.
type KeyedRequest struct {
	Agent string
	Key   string
	Print any // the request, for its fingerprint
	Entry ledger.AuditEntry
	Size  int64 // as in ledger.Op
	Claim sqlite.Claim
	Make  bool // whether to make the agent if there is none
	Drift bool // the reply has the run's current verdict, which is not stored with the key

	// Brief is what is remembered of a result, if that is less than all. Whole brings the rest back, which the repeated request or a
	// row has.
	Brief func(result any) any
	Whole func(tx *ledger.Tx, agent *ledger.AgentRow, result any) error

	Secrets []secrets.Secret // secrets that were found in the request outside a state
}

// Keyed runs a write of an agent under its idempotency key. do must write an audit row before it
// returns, or change nothing: in that case nothing is remembered, and a repeated request gets the
// same reply.
func Keyed[T any](s *Drifts, sc ckpt.Scope, r KeyedRequest, do func(*ledger.Tx, *ledger.AgentRow) (*T, error)) (result *T, replayed bool, err error) {
	print := ""
	if r.Key != "" {
		if err := ckpt.CheckKey("Idempotency-Key", r.Key); err != nil {
			return nil, false, err
		}
		if print, err = ledger.Fingerprint([]any{r.Entry.Action, r.Entry.Run, r.Print}); err != nil {
			return nil, false, err
		}
	}
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Size: r.Size, Claim: r.Claim, Entry: r.Entry, Do: func(tx *ledger.Tx) error {
		agent, err := s.agentFor(tx, sc, r)
		if err != nil {
			return err
		}
		before := tx.Head.N
		first := new(T)
		if replayed, err = tx.Replayed(agent.ID, r.Key, print, first); err != nil {
			return err
		}
		if replayed && r.Whole != nil {
			if err := r.Whole(tx, agent, first); err != nil {
				return err
			}
		}
		if result = first; !replayed {
			if result, err = do(tx, agent); err == nil && tx.Head.N != before {
				kept := any(result)
				if r.Brief != nil {
					kept = r.Brief(result)
				}
				if err = tx.Remember(agent.ID, r.Key, print, kept); err == nil {
					err = s.ReportBeside(tx, agent, r.Entry.Run, r.Secrets)
				}
			}
		}
		if err == nil && sc.Foreign() && tx.Head.N == before { // an earlier result is shown again to an administrator
			e := r.Entry
			e.Action = "admin_" + e.Action
			err = tx.Audit(e)
		}
		if err != nil || !r.Drift {
			return err
		}
		verdict, err := s.VerdictFor(tx, agent, r.Entry.Run)
		setDrift(result, verdict)
		return err
	}})
	if err != nil {
		return nil, false, err
	}
	return result, replayed, nil
}

func (s *Drifts) agentFor(tx *ledger.Tx, sc ckpt.Scope, r KeyedRequest) (*ledger.AgentRow, error) {
	if r.Make {
		return s.MakeAgent(tx, sc.Whose(), r.Agent)
	}
	return s.NeedAgent(tx, sc, r.Agent)
}
