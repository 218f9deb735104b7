package host

import (
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// promptPage is how many prompts one query reads to find open ones.
const promptPage = 200

// FleetPrompts lists the open prompts of all hosts that the scope may see.
func (v *view) FleetPrompts(ctx context.Context, sc ckpt.Scope, q fleet.RunsQuery) (*survey.FleetPrompts, error) {
	q.For, q.Owner = v.asker(sc)
	v.auditRead(sc, "read_fleet_prompts", q.Agent, "")
	o, err := opener(v.shipper.keys)
	if err != nil {
		return nil, err
	}
	return askEngine(ctx, v, sc.Admin, func(e *pg.Engine) (*survey.FleetPrompts, error) { return openPrompts(ctx, e, o, q) })
}

// openPrompts reads prompts until it has a page of those that wait for an answer. Only
// their documents tell whether they are open, and these can be sealed.
func openPrompts(ctx context.Context, e *pg.Engine, o *seal.Opener, q fleet.RunsQuery) (*survey.FleetPrompts, error) {
	page := &survey.FleetPrompts{Prompts: []survey.FleetPrompt{}}
	limit, now := q.Limit, ckpt.At(time.Now())
	q.Limit = promptPage
	for {
		rows, err := e.Prompts(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			h := &rows[i]
			if err := o.Row(h); err != nil {
				page.Unopened++
				continue
			}
			p, err := journal.ReadPrompt(h, now)
			if err != nil || p.Status != ckpt.PromptOpen { // `fleet verify` names documents that cannot be read
				continue
			}
			if len(page.Prompts) == limit {
				page.Next = ckpt.Ref(page.Prompts[limit-1].ID)
				return page, nil
			}
			page.Prompts = append(page.Prompts, survey.FleetPrompt{Prompt: *p, Host: h.Host, DB: h.DB, Principal: h.Principal, RunUID: h.UID})
		}
		if len(rows) < promptPage {
			return page, nil
		}
		q.Before = rows[len(rows)-1].Key
	}
}

// FleetCheckpoint reads a checkpoint that the scope may see: from this host if it is
// here, otherwise from the engine.
func (v *view) FleetCheckpoint(ctx context.Context, sc ckpt.Scope, id string, state bool) (*ckpt.Checkpoint, error) {
	c, err := v.store.Checkpoint(ctx, sc, id, state)
	if ckpt.CodeOf(err) != ckpt.CodeNotFound {
		return c, err
	}
	o, err := opener(v.shipper.keys)
	if err != nil {
		return nil, err
	}
	asker, owner := v.asker(sc)
	held, err := askEngine(ctx, v, sc.Admin, func(e *pg.Engine) (*fleet.HeldCheckpoint, error) {
		return e.Checkpoint(ctx, id, asker, owner, state)
	})
	if err != nil {
		return nil, err
	}
	if held == nil {
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "checkpoint %s is neither on this host nor in the fleet", id)
	}
	v.auditRead(sc, "read_fleet_checkpoint", held.Agent, held.Run)
	return openCheckpoint(o, sc, held, state)
}

// openCheckpoint opens and checks a checkpoint of the engine.
func openCheckpoint(o *seal.Opener, sc ckpt.Scope, held *fleet.HeldCheckpoint, state bool) (*ckpt.Checkpoint, error) {
	o.Run(&held.LostRun)
	c, err := journal.ReadCheckpoint(held, state)
	id := held.Checkpoints[0].ID
	switch {
	case err == nil:
		return c, nil
	case seal.NoKey(err.Error()) && !sc.Admin:
		return nil, ckpt.Errorf(ckpt.CodeConflict,
			"checkpoint %s of host %s is sealed, and this host does not have the key; an administrator is told which", id, held.Host)
	case seal.NoKey(err.Error()):
		return nil, ckpt.Wrap(ckpt.CodeConflict, err,
			"checkpoint %s of host %s is sealed with a key that this host does not have; add it to fleet.key_file", id, held.Host)
	}
	return nil, ckpt.Wrap(ckpt.CodeCorrupt, err, "the engine's copy of checkpoint %s of host %s is damaged", id, held.Host)
}
