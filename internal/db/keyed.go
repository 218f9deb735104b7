package db

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// keyedRequest is a write whose first reply is given again to the same key.
type keyedRequest struct {
	agent string
	key   string
	print any // what was asked
	entry auditEntry
	size  int64 // as in op
	claim sqlite.Claim
	make  bool // whether the agent is made where there is none
	drift bool // the answer says how the run stands now; that is not remembered

	secrets []secrets.Secret // that were found in the request beside a state
}

// keyed runs a write of an agent under its idempotency key. do writes an audit
// row before it returns, or changes nothing: then there is nothing to remember,
// and asking again gives the same.
func keyed[T any](s *drifts, sc ckpt.Scope, r keyedRequest, do func(*tx, *agentRow) (*T, error)) (result *T, replayed bool, err error) {
	print := ""
	if r.key != "" {
		if err := ckpt.CheckKey("Idempotency-Key", r.key); err != nil {
			return nil, false, err
		}
		if print, err = fingerprint([]any{r.entry.Action, r.entry.Run, r.print}); err != nil {
			return nil, false, err
		}
	}
	err = s.write(&op{owner: sc.Caller.Owner, size: r.size, claim: r.claim, entry: r.entry, apply: func(tx *tx) error {
		agent, err := s.agentFor(tx, sc, r)
		if err != nil {
			return err
		}
		before := tx.head.n
		first := new(T)
		if replayed, err = tx.replayed(agent.ID, r.key, print, first); err != nil {
			return err
		}
		if result = first; !replayed {
			if result, err = do(tx, agent); err == nil && tx.head.n != before {
				if err = tx.remember(agent.ID, r.key, print, result); err == nil {
					err = s.reportBeside(tx, agent, r.entry.Run, r.secrets)
				}
			}
		}
		if err == nil && sc.Foreign() && tx.head.n == before { // what was done before is shown again, to somebody else
			e := r.entry
			e.Action = "admin_" + e.Action
			err = tx.audit(e)
		}
		if err != nil || !r.drift {
			return err
		}
		verdict, err := s.verdictFor(tx, agent, r.entry.Run)
		setDrift(result, verdict)
		return err
	}})
	if err != nil {
		return nil, false, err
	}
	return result, replayed, nil
}

func (s *drifts) agentFor(tx *tx, sc ckpt.Scope, r keyedRequest) (*agentRow, error) {
	if r.make {
		return s.makeAgent(tx, sc.Whose(), r.agent)
	}
	return s.needAgent(tx, sc, r.agent)
}
