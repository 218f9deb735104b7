package adk

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/google/uuid"
)

// The workflows of our runs.
const (
	sessionWorkflow = "session"
	appWorkflow     = "app-state"
	userWorkflow    = "user-state"
)

// The limits for retries of a change while other processes change the same document.
const (
	tries      = 50
	firstPause = 20 * time.Millisecond
	mostPause  = time.Second
	mostKnown  = 64 // documents that are remembered between two changes
)

// place is where a document is kept: a run, with its workflow and the id that people see.
type place struct{ run, workflow, external string }

func sessionPlace(app, user, id string) place {
	return place{runName(id, sessionWorkflow, app, user, id), sessionWorkflow, id}
}

func appPlace(app string) place { return place{runName(app, appWorkflow, app), appWorkflow, app} }

func userPlace(app, user string) place {
	return place{runName(user, userWorkflow, app, user), userWorkflow, user}
}

// documents are the documents that this process has claimed. A document is a run whose newest
// checkpoint is its content.
type documents struct {
	mu    sync.Mutex
	known map[string]*claimed // by run
	once  sync.Once
	own   *client.Client
}

// claimed is a document whose run this process owns, as far as it knows.
type claimed struct {
	mu    sync.Mutex
	held  bool
	epoch int64
	state []byte // nil if nothing was saved
}

// client returns the client to use.
func (s *Service) client() *client.Client {
	if s.Client != nil {
		return s.Client
	}
	s.documents.once.Do(func() { s.documents.own = &client.Client{} })
	return s.documents.own
}

func (s *Service) agent() string { return cmp.Or(s.Agent, DefaultAgent) }

func (s *Service) document(run string) *claimed {
	d := &s.documents
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.known[run]; c != nil {
		return c
	}
	if d.known == nil || len(d.known) >= mostKnown {
		d.known = map[string]*claimed{}
	}
	c := &claimed{}
	d.known[run] = c
	return c
}

// change changes the document at a place. work gets the content, or nil if there is none, and
// returns the new content, or nil to leave it. change can call work more than once.
func (s *Service) change(ctx context.Context, at place, work func(old []byte) ([]byte, error)) error {
	c := s.document(at.run)
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.insist(ctx, at, c, func() error {
		next, err := work(c.state)
		if err != nil {
			return err
		}
		if next == nil {
			return s.verify(ctx, at, c)
		}
		if err := s.save(ctx, at, c.epoch, next); err != nil {
			return err
		}
		c.state = next
		return nil
	})
}

// insist runs work as the owner of a document. If another process has become the owner, it claims
// the document and tries again.
func (s *Service) insist(ctx context.Context, at place, c *claimed, work func() error) error {
	pause := firstPause
	for n := 1; ; n++ {
		err := s.claim(ctx, at, c)
		if err == nil {
			err = work()
		}
		if err == nil {
			return nil
		}
		c.held = false // after any error, it is unknown what the daemon has
		if code := ckpt.CodeOf(err); n >= tries || code != ckpt.CodeFenced && code != ckpt.CodeConflict {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(pause)):
		}
		pause = min(pause*3/2, mostPause)
	}
}

func (s *Service) claim(ctx context.Context, at place, c *claimed) error {
	if c.held {
		return nil
	}
	wire, agent, never := s.client().Wire(), s.agent(), ckpt.Duration(0)
	if err := s.prepare(ctx); err != nil {
		return err
	}
	plan, _, err := wire.Resume(ctx, ckpt.ResumeRequest{Agent: agent, Run: at.run, HeartbeatTimeout: &never, ProgressTimeout: &never})
	if err != nil {
		return err
	}
	if !plan.Claimed {
		return ckpt.Errorf(ckpt.CodeInvalid, "run %s of agent %s cannot be written to: its plan is %s", at.run, agent, plan.Verdict)
	}
	var state []byte
	if plan.Verdict == ckpt.VerdictFresh {
		_, _, err = wire.StartRun(ctx, ckpt.RunRequest{
			Agent: agent, Run: at.run, Workflow: ckpt.Ref(at.workflow), ExternalSession: ckpt.Ref(at.external),
			HeartbeatTimeout: &never, ProgressTimeout: &never,
		})
	} else {
		state, err = s.newest(ctx, at.run)
	}
	if err != nil {
		return err
	}
	c.held, c.epoch, c.state = true, plan.Epoch, state
	return nil
}

// prepare turns drift off for a new agent: a session that is cut or rewritten is not drift.
func (s *Service) prepare(ctx context.Context) error {
	wire := s.client().Wire()
	if _, err := wire.Policy(ctx, s.agent()); ckpt.CodeOf(err) != ckpt.CodeNotFound {
		return err
	}
	p := ckpt.DefaultPolicy()
	p.Sensitivity = ckpt.SensitivityOff
	_, err := wire.SetPolicy(ctx, s.agent(), p)
	return err
}

func (s *Service) save(ctx context.Context, at place, epoch int64, state []byte) error {
	id, err := uuid.NewV7() // made here, so that it stays the same for each repetition
	if err != nil {
		return err
	}
	_, err = s.client().Wire().Save(ctx, &ckpt.SaveRequest{
		ID: id.String(), Agent: s.agent(), Run: at.run, Kind: ckpt.KindRoutine, Epoch: &epoch,
		ContentType: ckpt.ContentTypeJSON, State: append([]byte(nil), state...),
	})
	return err
}

// verify returns an error if another process has become the owner, because then the content that is
// known here can be old.
func (s *Service) verify(ctx context.Context, at place, c *claimed) error {
	run, err := s.client().Wire().Run(ctx, ckpt.RunRef{Agent: s.agent(), Run: at.run})
	if err != nil {
		return err
	}
	if run.Epoch != c.epoch || !run.EndedAt.IsZero() {
		return ckpt.Errorf(ckpt.CodeFenced, "run %s has another owner", at.run)
	}
	return nil
}

// remove ends a document and removes its checkpoints. A later change starts a new document.
func (s *Service) remove(ctx context.Context, at place) error {
	if state, err := s.latest(ctx, at.run); state == nil || err != nil {
		return err
	}
	c := s.document(at.run)
	c.mu.Lock()
	defer c.mu.Unlock()
	wire := s.client().Wire()
	var ids []string
	err := s.insist(ctx, at, c, func() (err error) {
		if ids, err = s.checkpoints(ctx, at.run); err == nil { // others must claim the run before they add one
			_, _, err = wire.EndRun(ctx, ckpt.RunRef{Agent: s.agent(), Run: at.run, Epoch: &c.epoch},
				ckpt.EndRequest{Status: ckpt.RunCompleted, Epoch: &c.epoch})
		}
		return err
	})
	c.held = false
	for _, id := range ids {
		if err != nil {
			break
		}
		if _, err = wire.Delete(ctx, id); ckpt.CodeOf(err) == ckpt.CodeNotFound {
			err = nil
		}
	}
	return err
}

func (s *Service) checkpoints(ctx context.Context, run string) (ids []string, err error) {
	f := ckpt.CheckpointFilter{Agent: s.agent(), Run: run, Limit: ckpt.MaxLimit}
	for {
		page, err := s.client().Wire().Checkpoints(ctx, f)
		if err != nil {
			return nil, err
		}
		for i := range page.Checkpoints {
			ids = append(ids, page.Checkpoints[i].ID)
		}
		if page.Next == "" {
			return ids, nil
		}
		f.Before = string(page.Next)
	}
}

// latest returns the content of a document, nil if there is none or it was removed.
func (s *Service) latest(ctx context.Context, run string) ([]byte, error) {
	info, err := s.client().Wire().Run(ctx, ckpt.RunRef{Agent: s.agent(), Run: run})
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil, nil
	}
	if err != nil || !info.EndedAt.IsZero() {
		return nil, err
	}
	return s.newest(ctx, run)
}

func (s *Service) newest(ctx context.Context, run string) ([]byte, error) {
	c, err := s.client().Wire().Latest(ctx, ckpt.CheckpointFilter{Agent: s.agent(), Run: run, Kind: ckpt.KindRoutine}, true)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return c.State, nil
}

// runs returns the names of the runs of a workflow that have content.
func (s *Service) runs(ctx context.Context, workflow string) (names []string, err error) {
	f := ckpt.RunFilter{Agent: s.agent(), Limit: ckpt.MaxLimit}
	for {
		page, err := s.client().Wire().Runs(ctx, f)
		if ckpt.CodeOf(err) == ckpt.CodeNotFound {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range page.Runs {
			if r := &page.Runs[i]; string(r.Workflow) == workflow && r.EndedAt.IsZero() {
				names = append(names, r.Run)
			}
		}
		if page.Next == "" {
			return names, nil
		}
		f.Before = string(page.Next)
	}
}

func foreign(run string, err error) error {
	return ckpt.Wrap(ckpt.CodeInvalid, err, "run %s does not hold a session of the kit: give another agent's name (%v)", run, err)
}

const readable = 100 // bytes of an id that are in the name of its run

// runName returns a name of a run that people can read, and that is different for each key.
func runName(id string, key ...string) string {
	text, _ := json.Marshal(key)
	sum := sha256.Sum256(text)
	name := strings.TrimLeft(strings.Map(nameRune, id), "._:@+-")
	name = name[:min(len(name), readable)]
	if name != "" {
		name += "-"
	}
	return name + hex.EncodeToString(sum[:8])
}

// nameRune replaces characters that the name of a run must not contain.
func nameRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._:@+-", r):
		return r
	}
	return '_'
}
