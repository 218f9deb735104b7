package db_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// The model is a store as section 8 of the design promises it. It works in
// memory, and speed does not matter: it computes every answer again. It shares
// no code with the store or with internal/retention.
type model struct {
	wall     time.Time     // the wall clock, which jumps
	mono     time.Duration // the monotonic clock
	held     time.Duration // when the daemon started or the wall clock jumped, on the monotonic clock
	agents   []*mAgent
	sent     []*mSent            // saves whose keys are still known
	removed  map[string][]mCause // by checkpoint id: the cause of each removal
	judged   time.Time           // when a round last judged the ages; zero if never
	dirty    bool                // a hook changed something that the store could not see: audit_violations must wait for a round
	unjudged bool                // the same, and no round has judged ages since then
	names    int
}

type mAgent struct {
	scope  ckpt.Scope
	name   string
	own    ckpt.Policy // the agent's own settings; where one is the default, its owner's policy counts
	policy ckpt.Policy // the effective policy
	owners *ckpt.Policy
	exists bool
	runs   []*mRun // in the order of their creation
}

type mRun struct {
	agent   *mAgent
	name    string
	ended   bool
	endedAt time.Time
	last    int64  // sequence number
	head    string // the parent of the next save
	left    int64  // the last checkpoint that existed when it went back
	back    int64  // the one that it went back to
	forkOf  string // the checkpoint that the first save needs
	list    []*mCheckpoint
	ops     []*mOperation
	prompts []*mPrompt
	steps   map[string]ckpt.StepStatus
	told    bool // a finding says that its states contain a secret
}

type mCheckpoint struct {
	id, parent, operation string
	run                   *mRun
	seq                   int64
	kind                  ckpt.Kind
	at                    time.Time
	pinned, suspect       bool
}

type mOperation struct {
	key, checkpoint string
	attempt         int
	status          ckpt.OperationStatus
}

type mPrompt struct {
	id, checkpoint string
	answered       bool
}

// mSent is a save that was acknowledged, and its answer.
type mSent struct {
	agent   *mAgent
	request ckpt.SaveRequest
	seq     int64
	parent  string
	at      time.Time
	pruned  []string
}

// mCause is why a checkpoint has to be removed.
type mCause string

const (
	staysYet  mCause = ""
	byCount   mCause = "count"
	byAge     mCause = "age"
	byAlone   mCause = "alone" // a pre_operation checkpoint without an operation, by age
	byRelease mCause = "release"
	byEnd     mCause = "end"
	byHand    mCause = "hand"
)

// reasons is what the audit row of each cause must contain.
var reasons = map[mCause]string{
	byCount: "routine", byAge: "as a recovery checkpoint are over", byAlone: "as one without an operation are over", byRelease: "its operation succeeded", byEnd: "its run ended", byHand: "deleted by",
}

func newModel() *model {
	anns, bobs := ckpt.DefaultPolicy(), ckpt.DefaultPolicy()
	return &model{wall: newClock().now, removed: map[string][]mCause{}, agents: []*mAgent{
		{scope: ann, name: "alpha", owners: &anns}, {scope: ann, name: "beta", owners: &anns}, {scope: bob, name: "alpha", owners: &bobs},
	}}
}

// trusted reports whether ages may be judged: not in the ten minutes after a
// start or a jump.
func (m *model) trusted() bool { return m.mono-m.held >= 10*time.Minute }

func (m *model) pass(d time.Duration) { m.wall, m.mono = m.wall.Add(d), m.mono+d }

func (m *model) jump(d time.Duration) { m.wall, m.held = m.wall.Add(d), m.mono }

func (m *model) runs() (list []*mRun) {
	for _, a := range m.agents {
		list = append(list, a.runs...)
	}
	return list
}

func (m *model) checkpoints() (list []*mCheckpoint) {
	for _, r := range m.runs() {
		list = append(list, r.list...)
	}
	return list
}

func (m *model) find(id string) *mCheckpoint {
	for _, c := range m.checkpoints() {
		if c.id == id {
			return c
		}
	}
	return nil
}

// needed reports whether an open operation, a prompt or a fork needs a
// checkpoint.
func (m *model) needed(c *mCheckpoint) bool {
	for _, o := range c.run.ops {
		if o.checkpoint == c.id && (o.status == ckpt.OperationOpen || o.status == ckpt.OperationUncertain) {
			return true
		}
	}
	for _, p := range c.run.prompts {
		if p.checkpoint == c.id && !p.answered {
			return true
		}
	}
	for _, r := range m.runs() {
		if r.forkOf == c.id && r.last == 0 && !r.ended {
			return true
		}
	}
	return false
}

// wayBack returns the rollback target of a run: the newest clean checkpoint, or
// the newest one if none is clean. For an ended run it is the final checkpoint.
func (r *mRun) wayBack() *mCheckpoint {
	var newest, clean *mCheckpoint
	for _, c := range r.list {
		newest = c
		if !c.suspect {
			clean = c
		}
	}
	if !r.ended && clean != nil {
		return clean
	}
	return newest
}

// cause returns the rule of the design by which a checkpoint must be removed
// now.
func (m *model) cause(c *mCheckpoint) mCause {
	r, p := c.run, c.run.agent.policy
	if c.pinned || m.needed(c) {
		return staysYet
	}
	if !r.ended && r.head == c.id { // it is the parent of the next save
		return staysYet
	}
	if r.ended && m.trusted() && !m.wall.Before(r.endedAt.Add(time.Duration(p.EndedKeep))) {
		return byEnd
	}
	if r.wayBack() == c {
		return staysYet
	}
	switch c.kind {
	case ckpt.KindRoutine:
		newer := 0
		for _, other := range r.list {
			if other.kind == ckpt.KindRoutine && other.seq > c.seq {
				newer++
			}
		}
		if p.RoutineKeep > 0 && newer >= p.RoutineKeep {
			return byCount
		}
	case ckpt.KindRecovery:
		if m.trusted() && !m.wall.Before(c.at.Add(time.Duration(p.RecoveryKeep))) {
			return byAge
		}
	case ckpt.KindPreOperation:
		for _, o := range r.ops {
			if o.key == c.operation && o.status == ckpt.OperationSucceeded {
				return byRelease
			}
		}
		if c.operation == "" && p.PreOperationKeep > 0 && m.trusted() && !m.wall.Before(c.at.Add(time.Duration(p.PreOperationKeep))) {
			return byAlone
		}
	}
	return staysYet
}

// due returns what must be removed from some runs, and why. All causes are
// found before the first removal, because a removal by one rule does not free a
// checkpoint from another rule.
func (m *model) due(runs ...*mRun) map[string]mCause {
	list := map[string]mCause{}
	for _, r := range runs {
		for _, c := range r.list {
			if why := m.cause(c); why != staysYet {
				list[c.id] = why
			}
		}
	}
	return list
}

// only returns the part of due with some of the causes.
func only(due map[string]mCause, causes ...mCause) map[string]mCause {
	part := map[string]mCause{}
	for id, why := range due {
		if slices.Contains(causes, why) {
			part[id] = why
		}
	}
	return part
}

func (m *model) remove(id string, why mCause) {
	c := m.find(id)
	c.run.list = slices.DeleteFunc(c.run.list, func(o *mCheckpoint) bool { return o == c })
	m.removed[id] = append(m.removed[id], why)
}

// drop removes the ended runs whose time is over and that have no checkpoints
// left.
func (m *model) drop() (dropped []*mRun) {
	for _, a := range m.agents {
		a.runs = slices.DeleteFunc(a.runs, func(r *mRun) bool {
			over := r.ended && m.trusted() && len(r.list) == 0 && !m.wall.Before(r.endedAt.Add(time.Duration(a.policy.EndedKeep)))
			if over {
				dropped = append(dropped, r)
			}
			return over
		})
	}
	return dropped
}

// outcome is what a step does besides the effect of change on the model: which
// checkpoints must have been removed when it returns, and which ones may have
// been. A save applies the counts. A checkpoint that has reached its age waits
// for a round, but may be removed earlier.
type outcome struct {
	must, may map[string]mCause
	settled   func(removed []string) // gets the removed ids
}

func exactly(due map[string]mCause) outcome { return outcome{must: due, may: due} }

// step is one step, for the model and for the store.
type step struct {
	what   string
	still  bool             // whether it changes nothing in the database
	code   ckpt.Code        // the expected refusal; then nothing changes
	change func() outcome   // changes the model
	do     func(h *harness) // calls the store

	by    ckpt.Caller     // the caller in whose name it removes checkpoints; empty means the daemon
	audit func() []mAudit // rows that it adds to the audit log besides removals; called when the step is done
}

// mAudit is a row of the audit log.
type mAudit struct{ who, action, owner, agent, run, subject, outcome string }

// anything stands for a subject that the store generates.
const anything = "*"

// row returns the expected audit row for an action on an agent.
func (a *mAgent) row(by ckpt.Caller, action, run, subject string, code ckpt.Code) mAudit {
	outcome := string(code)
	if code == "" {
		outcome = "done"
	}
	return mAudit{by.Owner, action, a.scope.Caller.Owner, a.name, run, subject, outcome}
}

// adds sets the rows that a step adds.
func (s *step) adds(rows ...mAudit) *step {
	s.audit = func() []mAudit { return rows }
	return s
}

// as returns the caller that acts on an agent: mostly its owner, sometimes an
// administrator.
func (g *generator) as(a *mAgent) ckpt.Scope {
	if g.chance(8) {
		return ckpt.Scope{Caller: root.Caller, Target: a.scope.Caller.Owner}
	}
	return a.scope
}

// generator makes steps from a seed and from the content of the model, so that
// the same seed makes the same steps.
type generator struct {
	*model
	r *rand.Rand
}

func newGenerator(seed uint64) *generator {
	return &generator{newModel(), rand.New(rand.NewPCG(seed, 25))}
}

func (g *generator) chance(percent int) bool { return g.r.IntN(100) < percent }

func pick[T any](g *generator, list []T) (one T, ok bool) {
	if len(list) == 0 {
		return one, false
	}
	return list[g.r.IntN(len(list))], true
}

// id returns a UUID of version 7 from the seed.
func (g *generator) id() string {
	a, b := g.r.Uint64(), g.r.Uint64()
	return fmt.Sprintf("%08x-%04x-7%03x-8%03x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>52, b&(1<<48-1))
}

// next makes a step. If a kind of step is impossible now, it draws again.
func (g *generator) next() *step {
	kinds := []struct {
		weight int
		make   func() *step
	}{
		{40, g.save}, {4, g.saveAgain}, {6, g.pin}, {5, g.unpin}, {4, g.delete}, {5, g.restore}, {4, g.policy}, {2, g.ownerPolicy},
		{5, g.suspect}, {4, g.unsuspect}, {6, g.begin}, {7, g.end}, {2, g.loseOwner}, {2, g.endRun}, {2, g.prompt}, {2, g.answer}, {1, g.fork},
		{6, g.beginStep}, {4, g.finishStep}, {4, g.stranger}, {1, g.erase}, {1, g.tooLarge},
		{12, g.time}, {3, g.clockJump}, {7, g.round}, {5, g.prune}, {2, g.reopen}, {1, g.crash},
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	for {
		n := g.r.IntN(total)
		for _, k := range kinds {
			if n -= k.weight; n < 0 {
				if s := k.make(); s != nil {
					return s
				}
				break
			}
		}
	}
}

// live picks a run that has not ended, or a new one.
func (g *generator) live() (*mAgent, string) {
	a, _ := pick(g, g.agents)
	var names []string
	for _, r := range a.runs {
		if !r.ended {
			names = append(names, r.name)
		}
	}
	if len(names) < 3 && g.chance(20) || len(names) == 0 {
		g.names++
		return a, fmt.Sprint("run", g.names)
	}
	name, _ := pick(g, names)
	return a, name
}

func (a *mAgent) run(name string) *mRun {
	for _, r := range a.runs {
		if r.name == name {
			return r
		}
	}
	return nil
}

// makeRun finds or creates a run, and its agent if necessary.
func (a *mAgent) makeRun(name string) *mRun {
	a.make()
	r := a.run(name)
	if r == nil {
		r = &mRun{agent: a, name: name, steps: map[string]ckpt.StepStatus{}}
		a.runs = append(a.runs, r)
	}
	return r
}

func (a *mAgent) make() {
	if !a.exists {
		a.exists, a.own = true, ckpt.DefaultPolicy()
		a.merge()
	}
}

// merge computes the effective policy from the settings of an agent and its
// owner's policy for all agents.
func (a *mAgent) merge() {
	builtIn := ckpt.DefaultPolicy()
	a.policy = a.own
	if a.own.RoutineKeep == builtIn.RoutineKeep {
		a.policy.RoutineKeep = a.owners.RoutineKeep
	}
	if a.own.RecoveryKeep == builtIn.RecoveryKeep {
		a.policy.RecoveryKeep = a.owners.RecoveryKeep
	}
	if a.own.PreOperationKeep == builtIn.PreOperationKeep {
		a.policy.PreOperationKeep = a.owners.PreOperationKeep
	}
	if a.own.EndedKeep == builtIn.EndedKeep {
		a.policy.EndedKeep = a.owners.EndedKeep
	}
}

func (g *generator) state() []byte {
	size := 10
	if g.chance(5) {
		size = 6000 // this size gets its own segment
	}
	return fmt.Appendf(nil, `{"n":%d,"text":"%s"}`, g.r.Uint32(), strings.Repeat("xy", size/2))
}

func (g *generator) save() *step {
	a, name := g.live()
	kind := []ckpt.Kind{ckpt.KindRoutine, ckpt.KindRoutine, ckpt.KindRoutine, ckpt.KindRecovery, ckpt.KindPreOperation}[g.r.IntN(5)]
	sc := g.as(a)
	req := ckpt.SaveRequest{ID: g.id(), Agent: a.name, Run: name, Kind: kind, ContentType: ckpt.ContentTypeJSON, State: g.state()}
	s := &step{what: fmt.Sprintf("save %s %s/%s %s", kind, a.scope.Caller.Owner, a.name, name), by: sc.Caller}
	secret := ckpt.SecretsOff // what happens to a state without a secret
	if g.chance(6) {
		req.State = []byte(`{"password":"correct horse battery"}`)
		if secret = ckpt.DefaultPolicy().Secrets; a.exists {
			secret = a.policy.Secrets
		}
		s.what += " with a secret, which the policy has: " + string(secret)
		if secret == ckpt.SecretsReject {
			s.code = ckpt.CodeInvalid
		}
	}
	if g.chance(15) {
		of, _ := pick(g, g.agents)
		var all []*mCheckpoint
		for _, r := range of.runs {
			all = append(all, r.list...)
		}
		if c, ok := pick(g, all); ok {
			req.Parent = ckpt.Ref(c.id)
			s.what += " from " + c.id
			if of != a && s.code == "" {
				s.code = ckpt.CodeNotFound
			}
		}
	}
	s.what += " as " + req.ID
	s.audit = func() []mAudit {
		rows := []mAudit{a.row(sc.Caller, "save", name, req.ID, s.code)}
		if r := a.run(name); s.code == "" && secret != ckpt.SecretsOff && !r.told { // only once while the finding is open
			r.told = true
			found := a.row(ckpt.Caller{Owner: "daemon"}, "finding", name, anything, "")
			rows = append(rows, found)
		}
		return rows
	}
	var pruned []string
	s.change = func() outcome {
		r := a.makeRun(name)
		changed := []*mRun{r}
		if from := g.find(r.forkOf); from != nil && r.last == 0 && from.run != r {
			changed = append(changed, from.run) // the fork no longer needs it
		}
		c := &mCheckpoint{id: req.ID, parent: string(req.Parent), run: r, seq: r.last + 1, kind: kind, at: g.wall}
		if c.parent == "" {
			c.parent = r.head
		}
		r.last, r.head = c.seq, c.id
		r.list = append(r.list, c)
		due := g.due(changed...)
		sent := &mSent{agent: a, request: req, seq: c.seq, parent: c.parent, at: g.wall}
		g.sent = append(g.sent, sent)
		must := only(due, byCount, byRelease)
		return outcome{must: must, may: due, settled: func(removed []string) { sent.pruned = removed; pruned = removed }}
	}
	s.do = func(h *harness) {
		got, ok := answered(h.store.Save(h.ctx, sc, &req))(h, s.code)
		if !ok {
			return
		}
		h.after(func() {
			c := h.find(req.ID)
			if got.Replayed || got.Seq != c.seq || string(got.Parent) != c.parent || !got.CreatedAt.Equal(c.at) {
				h.fail("the save was answered with %+v, the model has %+v", got.Checkpoint, c)
			}
			h.same("pruned", got.Pruned, pruned)
		})
	}
	return s
}

// saveAgain sends an id again: the same request gets the first answer, another
// request with the id is refused.
func (g *generator) saveAgain() *step {
	sent, ok := pick(g, g.sent)
	if !ok {
		return nil
	}
	req := sent.request
	s := &step{what: "save again " + req.ID, change: func() outcome { return outcome{} }}
	if g.chance(30) {
		req.State, s.code = []byte(`"another"`), ckpt.CodeIdempotencyMismatch
		s.what += " with other bytes"
		s.adds(sent.agent.row(sent.agent.scope.Caller, "save", req.Run, req.ID, s.code))
	}
	s.do = func(h *harness) {
		got, ok := answered(h.store.Save(h.ctx, sent.agent.scope, &req))(h, s.code)
		if !ok {
			return
		}
		if !got.Replayed || got.ID != req.ID || got.Seq != sent.seq || string(got.Parent) != sent.parent || !got.CreatedAt.Equal(sent.at) {
			h.fail("the repeated save was answered with %+v, first it was %+v", got, sent)
		}
		h.same("pruned", got.Pruned, sent.pruned)
	}
	return s
}

// that picks a checkpoint among those that pass.
func (g *generator) that(pass func(c *mCheckpoint) bool) (*mCheckpoint, bool) {
	var list []*mCheckpoint
	for _, c := range g.checkpoints() {
		if pass(c) {
			list = append(list, c)
		}
	}
	return pick(g, list)
}

func (g *generator) pin() *step {
	c, ok := g.that(func(c *mCheckpoint) bool { return !c.pinned })
	if !ok {
		return nil
	}
	return g.setPin(c, true)
}

func (g *generator) unpin() *step {
	c, ok := g.that(func(c *mCheckpoint) bool { return c.pinned })
	if !ok {
		return nil
	}
	return g.setPin(c, false)
}

func (g *generator) setPin(c *mCheckpoint, pinned bool) *step {
	sc := g.as(c.run.agent)
	s := &step{what: fmt.Sprintf("pin %s %t", c.id, pinned), by: sc.Caller, change: func() outcome {
		c.pinned = pinned
		if pinned {
			return outcome{}
		}
		due := g.due(c.run)
		return outcome{must: only(due, byCount, byRelease), may: due}
	}, do: func(h *harness) {
		patch := ckpt.CheckpointPatch{Pinned: &pinned}
		if pinned {
			patch.Labels = &ckpt.Labels{"pinned": "true"}
		}
		got, ok := answered(h.store.Patch(h.ctx, sc, c.id, patch))(h, "")
		if ok && got.Pinned != pinned {
			h.fail("pinned is %t", got.Pinned)
		}
	}}
	return s.adds(c.run.agent.row(sc.Caller, "change", c.run.name, c.id, ""))
}

func (g *generator) delete() *step {
	c, ok := g.that(func(*mCheckpoint) bool { return true })
	if !ok {
		return nil
	}
	a := c.run.agent
	s := (&step{what: "delete " + c.id}).adds(a.row(a.scope.Caller, "remove", c.run.name, c.id, ""))
	if c.pinned || g.needed(c) {
		s.code = ckpt.CodeConflict
		s.adds(mAudit{a.scope.Caller.Owner, "delete", a.scope.Caller.Owner, "", "", c.id, string(s.code)})
	}
	s.change = func() outcome {
		g.remove(c.id, byHand)
		if c.run.head == c.id {
			c.run.head = ""
			for _, o := range c.run.list {
				if o.seq > c.run.left || o.seq <= c.run.back {
					c.run.head = o.id
				}
			}
		}
		return outcome{}
	}
	s.do = func(h *harness) {
		got, ok := answered(h.store.Delete(h.ctx, c.run.agent.scope, c.id))(h, s.code)
		if ok && (got.Checkpoint != c.id || got.Reason == "") {
			h.fail("the removal was answered with %+v", got)
		}
	}
	return s
}

func (g *generator) restore() *step {
	c, ok := g.that(func(*mCheckpoint) bool { return true })
	if !ok {
		return nil
	}
	a, r := c.run.agent, ckpt.RestoreRequest{Agent: c.run.agent.name, Checkpoint: c.id, Reason: "a test"}
	if g.chance(50) { // lets the store choose
		r.Checkpoint, r.Run, r.Clean = "", c.run.name, true
		c = nil
		for _, o := range a.run(r.Run).list {
			if !o.suspect {
				c = o
			}
		}
	}
	s := &step{what: fmt.Sprintf("restore %+v", r), by: a.scope.Caller}
	if c == nil {
		s.code = ckpt.CodeNotFound
		s.adds(a.row(a.scope.Caller, "restore", r.Run, r.Checkpoint, s.code))
	} else {
		s.adds(a.row(a.scope.Caller, "restore", c.run.name, c.id, ""))
	}
	s.change = func() outcome {
		if c.run.head == c.id {
			return outcome{}
		}
		c.run.head = c.id // checkpoints that only the old head had kept are removed
		c.run.left, c.run.back = c.run.last, c.seq
		due := g.due(c.run)
		return outcome{must: only(due, byCount, byRelease), may: due}
	}
	s.do = func(h *harness) {
		got, _, err := h.store.Restore(h.ctx, a.scope, r)
		if got, ok := answered(got, err)(h, s.code); ok && got.ID != c.id {
			h.fail("restored %s, the model says %s", got.ID, c.id)
		}
	}
	return s
}

// somePolicy makes a policy about how long things stay, often equal to the
// default.
func (g *generator) somePolicy() ckpt.Policy {
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = []int{0, 1, 2, 3, 3, 5}[g.r.IntN(6)]
	p.RecoveryKeep = ckpt.Duration([]time.Duration{time.Second, time.Hour, 36*time.Hour + 500*time.Millisecond, 7 * ckpt.Day, 7 * ckpt.Day, 60 * ckpt.Day}[g.r.IntN(6)])
	p.PreOperationKeep = ckpt.Duration([]time.Duration{0, time.Second, time.Hour, 36*time.Hour + 500*time.Millisecond, 7 * ckpt.Day}[g.r.IntN(5)])
	p.EndedKeep = ckpt.Duration([]time.Duration{time.Hour, 30 * ckpt.Day, 30 * ckpt.Day}[g.r.IntN(3)])
	return p
}

// ownerPolicy sets an owner's policy for all agents. Runs of agents that have
// no other settings are judged by it at once.
func (g *generator) ownerPolicy() *step {
	a, _ := pick(g, g.agents)
	p := g.somePolicy()
	own, _ := wellformed.PolicyText(p)
	sc := g.as(a)
	s := &step{what: fmt.Sprintf("policy of %s for all agents %s", a.scope.Caller.Owner, own), by: sc.Caller, change: func() outcome {
		*a.owners = p
		all := outcome{must: map[string]mCause{}, may: map[string]mCause{}}
		for _, other := range g.agents {
			if other.owners != a.owners || !other.exists {
				continue
			}
			before := other.policy
			other.merge()
			due := g.due(other.runs...)
			maps.Copy(all.may, due)
			if !reflect.DeepEqual(before, other.policy) {
				maps.Copy(all.must, only(due, byCount))
			}
		}
		return all
	}, do: func(h *harness) {
		answered(h.store.SetOwnerPolicy(h.ctx, sc, own))(h, "")
	}}
	row := a.row(sc.Caller, "set_owner_policy", "", "", "")
	row.agent = ""
	return s.adds(row)
}

func (g *generator) policy() *step {
	a, _ := pick(g, g.agents)
	p := g.somePolicy()
	p.Secrets = []ckpt.SecretsMode{ckpt.SecretsOff, ckpt.SecretsWarn, ckpt.SecretsWarn, ckpt.SecretsRedact, ckpt.SecretsReject}[g.r.IntN(5)]
	sc := g.as(a)
	s := &step{what: fmt.Sprintf("policy of %s/%s %+v", a.scope.Caller.Owner, a.name, p), by: sc.Caller, change: func() outcome {
		a.make()
		a.own = p
		a.merge()
		due := g.due(a.runs...)
		return outcome{must: only(due, byCount), may: due}
	}, do: func(h *harness) {
		answered(h.store.SetPolicy(h.ctx, sc, a.name, p))(h, "")
	}}
	return s.adds(a.row(sc.Caller, "set_policy", "", "", ""))
}

// hook is a change that drift detection, operations or prompts make. Those
// belong to other packages.
func (g *generator) hook(what string, change func(), statements ...statement) *step {
	return &step{what: what, change: func() outcome {
		change()
		g.dirty, g.unjudged = true, true
		return outcome{}
	}, do: func(h *harness) { h.hook(statements...) }}
}

type statement struct {
	query string
	args  []any
}

const thisRun = `(SELECT r.id FROM runs r JOIN agents a ON a.id = r.agent_id WHERE a.owner = ? AND a.name = ? AND r.name = ?)`

// sql returns a statement whose last ? are the arguments of thisRun.
func (r *mRun) sql(query string, args ...any) statement {
	return statement{query, append(args, r.agent.scope.Caller.Owner, r.agent.name, r.name)}
}

// suspect marks a checkpoint as suspect, and often all later ones.
func (g *generator) suspect() *step {
	c, ok := g.that(func(c *mCheckpoint) bool { return !c.suspect })
	if !ok {
		return nil
	}
	last := c.seq
	if g.chance(60) {
		last = c.run.last
	}
	return g.hook(fmt.Sprintf("suspect %s up to %d", c.id, last), func() {
		for _, o := range c.run.list {
			o.suspect = o.suspect || o.seq >= c.seq && o.seq <= last
		}
	}, c.run.sql(`UPDATE checkpoints SET suspect = 1 WHERE seq BETWEEN ? AND ? AND run_id = `+thisRun, c.seq, last),
		c.run.sql(`INSERT INTO findings (id, run_id, at, rule, severity, message, since_seq, until_seq, closed, closed_at)
			SELECT 'of ' || id || lower(hex(randomblob(8))), run_id, created_at, 'model', 'critical', 'a hook', seq - 1, seq, 'resumed', created_at
			FROM checkpoints WHERE seq BETWEEN ? AND ? AND run_id = `+thisRun, c.seq, last))
}

func (g *generator) unsuspect() *step {
	c, ok := g.that(func(c *mCheckpoint) bool { return c.suspect })
	if !ok {
		return nil
	}
	return g.hook("not suspect "+c.id, func() { c.suspect = false },
		statement{`UPDATE checkpoints SET suspect = 0 WHERE id = ?`, []any{c.id}},
		statement{`UPDATE findings SET dismissed_at = at, dismissed_by = 'model' WHERE id LIKE 'of ' || ? || '%'`, []any{c.id}})
}

// begin begins an operation, or a new attempt of one that failed.
func (g *generator) begin() *step {
	c, ok := g.that(func(c *mCheckpoint) bool {
		return c.kind == ckpt.KindPreOperation && c.operation == "" && !c.run.ended
	})
	if !ok {
		return nil
	}
	r := c.run
	o := &mOperation{key: fmt.Sprint("op", g.r.IntN(4)), checkpoint: c.id, status: ckpt.OperationOpen, attempt: 1}
	for _, other := range r.ops {
		if other.key == o.key {
			o.attempt++
			if other.status != ckpt.OperationFailed {
				return nil
			}
		}
	}
	return g.hook(fmt.Sprintf("begin %s attempt %d at %s", o.key, o.attempt, c.id), func() {
		c.operation = o.key
		r.ops = append(r.ops, o)
	}, statement{`UPDATE checkpoints SET operation = ? WHERE id = ?`, []any{o.key, c.id}},
		r.sql(`INSERT INTO operations (key, attempt, name, status, checkpoint, started_at, run_id) VALUES (?, ?, 'risk', 'open', ?, ?, `+thisRun+`)`,
			o.key, o.attempt, c.id, ckpt.At(g.wall)))
}

// unended picks an operation without an end.
func (g *generator) unended(pass func(*mRun, *mOperation) bool) (*mRun, *mOperation, bool) {
	type unended struct {
		r *mRun
		o *mOperation
	}
	var list []unended
	for _, r := range g.runs() {
		for _, o := range r.ops {
			if (o.status == ckpt.OperationOpen || o.status == ckpt.OperationUncertain) && pass(r, o) {
				list = append(list, unended{r, o})
			}
		}
	}
	at, ok := pick(g, list)
	return at.r, at.o, ok
}

// end ends an operation, or resolves one whose outcome is unknown.
func (g *generator) end() *step {
	r, o, ok := g.unended(func(r *mRun, o *mOperation) bool { return !r.ended || o.status == ckpt.OperationUncertain })
	if !ok {
		return nil
	}
	a, action := r.agent, "end_operation"
	end := ckpt.OperationEnd{Key: o.key, Status: []ckpt.OperationStatus{ckpt.OperationSucceeded, ckpt.OperationSucceeded, ckpt.OperationFailed}[g.r.IntN(3)]}
	byPerson := r.ended || o.status == ckpt.OperationUncertain && g.chance(50)
	choice := map[ckpt.OperationStatus]ckpt.PromptChoice{ckpt.OperationSucceeded: ckpt.ChoiceItDid, ckpt.OperationFailed: ckpt.ChoiceItDidNot}[end.Status]
	if o.status == ckpt.OperationUncertain { // its code can learn late how it ended, which is a resolution too
		action = "resolve_operation"
	}
	end.Attempt = int64(o.attempt)
	var released []string
	s := &step{what: fmt.Sprintf("%s %s of %s %s", action, o.key, r.name, end.Status), by: a.scope.Caller, change: func() outcome {
		o.status = end.Status
		if end.Status == ckpt.OperationFailed {
			return outcome{}
		}
		due := exactly(g.due(r))
		due.settled = func(removed []string) { released = removed }
		return due
	}, do: func(h *harness) {
		ref := ckpt.RunRef{Agent: a.name, Run: r.name}
		do := func() (*ckpt.OperationEnded, bool, error) { return h.store.EndOperation(h.ctx, a.scope, ref, end) }
		if byPerson {
			do = func() (*ckpt.OperationEnded, bool, error) {
				return h.store.ResolveOperation(h.ctx, a.scope, ref, ckpt.OperationResolution{Key: o.key, Choice: choice})
			}
		}
		got, _, err := do()
		if got, ok := answered(got, err)(h, ""); ok {
			h.after(func() { h.same("released", got.Released, released) })
		}
	}}
	return s.adds(a.row(a.scope.Caller, action, r.name, o.key, ""))
}

// loseOwner makes an open operation uncertain, as the death of its owner does.
func (g *generator) loseOwner() *step {
	r, o, ok := g.unended(func(_ *mRun, o *mOperation) bool { return o.status == ckpt.OperationOpen })
	if !ok {
		return nil
	}
	return g.hook(fmt.Sprintf("operation %s of %s becomes uncertain", o.key, r.name), func() { o.status = ckpt.OperationUncertain },
		r.sql(`UPDATE operations SET status = 'uncertain', ended_at = ? WHERE key = ? AND attempt = ? AND run_id = `+thisRun, ckpt.At(g.wall), o.key, o.attempt))
}

func (g *generator) endRun() *step {
	var list []*mRun
	for _, r := range g.runs() {
		if !r.ended {
			list = append(list, r)
		}
	}
	r, ok := pick(g, list)
	if !ok {
		return nil
	}
	status := []ckpt.RunStatus{ckpt.RunCompleted, ckpt.RunFailed}[g.r.IntN(2)]
	sc := g.as(r.agent)
	s := &step{what: fmt.Sprintf("end %s/%s %s", r.agent.name, r.name, status), by: sc.Caller, change: func() outcome {
		g.endOf(r)
		return outcome{}
	}, do: func(h *harness) {
		got, _, err := h.store.EndRun(h.ctx, sc, ckpt.RunRef{Agent: r.agent.name, Run: r.name}, ckpt.EndRequest{Status: status, LeaveUncertain: true, Reason: "the model says so"})
		if got, ok := answered(got, err)(h, ""); ok && got.Status != status {
			h.fail("the run is %s", got.Status)
		}
	}}
	return s.adds(r.agent.row(sc.Caller, "end_run", r.name, "", ""))
}

// endOf applies the end of a run to everything that is open in it.
func (g *generator) endOf(r *mRun) {
	r.ended, r.endedAt = true, g.wall
	for _, o := range r.ops {
		if o.status == ckpt.OperationOpen {
			o.status = ckpt.OperationUncertain
		}
	}
	for key, status := range r.steps {
		if status == ckpt.StepStarted {
			r.steps[key] = ckpt.StepInterrupted
		}
	}
	for _, p := range r.prompts {
		p.answered = true
	}
}

func (g *generator) prompt() *step {
	c, ok := g.that(func(c *mCheckpoint) bool { return !c.run.ended })
	if !ok {
		return nil
	}
	p := &mPrompt{id: g.id(), checkpoint: c.id}
	return g.hook("prompt about "+c.id, func() { c.run.prompts = append(c.run.prompts, p) },
		c.run.sql(`INSERT INTO prompts (id, at, question, reason, checkpoint, run_id) VALUES (?, ?, 'go on?', 'a test', ?, `+thisRun+`)`,
			p.id, ckpt.At(g.wall), p.checkpoint))
}

func (g *generator) answer() *step {
	type open struct {
		r *mRun
		p *mPrompt
	}
	var list []open
	for _, r := range g.runs() {
		for _, p := range r.prompts {
			if !p.answered {
				list = append(list, open{r, p})
			}
		}
	}
	at, ok := pick(g, list)
	if !ok {
		return nil
	}
	choice := []ckpt.PromptChoice{ckpt.ChoiceResume, ckpt.ChoiceResume, ckpt.ChoiceAbandon}[g.r.IntN(3)]
	a := at.r.agent
	for _, o := range at.r.ops {
		if o.status == ckpt.OperationOpen || o.status == ckpt.OperationUncertain { // it must be resolved first
			s := &step{what: fmt.Sprintf("answer %s of %s over %s", at.p.id, at.r.name, o.key), by: a.scope.Caller, code: ckpt.CodeUncertainOperation,
				do: func(h *harness) {
					got, _, err := h.store.AnswerPrompt(h.ctx, a.scope, ckpt.PromptAnswer{ID: at.p.id, Choice: choice})
					answered(got, err)(h, ckpt.CodeUncertainOperation)
				}}
			return s.adds(a.row(a.scope.Caller, "answer_prompt", at.r.name, at.p.id, ckpt.CodeUncertainOperation))
		}
	}
	s := &step{what: fmt.Sprintf("answer %s of %s: %s", at.p.id, at.r.name, choice), by: a.scope.Caller, change: func() outcome {
		at.p.answered = true
		if choice == ckpt.ChoiceAbandon {
			g.endOf(at.r)
		}
		return exactly(g.due(at.r))
	}, do: func(h *harness) {
		got, _, err := h.store.AnswerPrompt(h.ctx, a.scope, ckpt.PromptAnswer{ID: at.p.id, Choice: choice})
		answered(got, err)(h, "")
	}}
	return s.adds(a.row(a.scope.Caller, "answer_prompt", at.r.name, at.p.id, ""))
}

// fork begins a run at a checkpoint of another run. Its first save frees that
// checkpoint.
func (g *generator) fork() *step {
	c, ok := g.that(func(*mCheckpoint) bool { return true })
	if !ok || len(c.run.agent.runs) > 6 {
		return nil
	}
	g.names++
	name := fmt.Sprint("fork", g.names)
	a := c.run.agent
	s := &step{what: fmt.Sprintf("fork %s as %s", c.id, name), change: func() outcome {
		r := a.makeRun(name)
		r.forkOf, r.head = c.id, c.id
		return outcome{}
	}, do: func(h *harness) {
		got, _, err := h.store.StartRun(h.ctx, a.scope, ckpt.RunRequest{Agent: a.name, Run: name, ForkFrom: ckpt.Ref(c.id)})
		answered(got, err)(h, "")
	}}
	return s.adds(a.row(a.scope.Caller, "start_run", name, "", ""))
}

// beginStep begins a step, or its next attempt. A step that has succeeded is
// not done again, and that answer is not a write.
func (g *generator) beginStep() *step {
	a, name := g.live()
	key := fmt.Sprint("step", g.r.IntN(4))
	s := &step{what: fmt.Sprintf("begin %s of %s/%s", key, a.name, name), change: func() outcome {
		if r := a.makeRun(name); r.steps[key] != ckpt.StepSucceeded {
			r.steps[key] = ckpt.StepStarted
		}
		return outcome{}
	}}
	done := a.run(name) != nil && a.run(name).steps[key] == ckpt.StepSucceeded
	if !done {
		s.adds(a.row(a.scope.Caller, "begin_step", name, key, ""))
	}
	s.do = func(h *harness) {
		got, _, err := h.store.BeginStep(h.ctx, a.scope, ckpt.RunRef{Agent: a.name, Run: name}, ckpt.StepRequest{Key: key, Name: "work"})
		if got, ok := answered(got, err)(h, s.code); ok && got.Replayed != done {
			h.fail("the step was answered with %+v, and it has succeeded before: %t", got, done)
		}
	}
	return s
}

// finishStep ends a step. A step that was never begun is refused, and then
// nothing new exists.
func (g *generator) finishStep() *step {
	a, name := g.live()
	key := fmt.Sprint("step", g.r.IntN(4))
	status := []ckpt.StepStatus{ckpt.StepSucceeded, ckpt.StepSucceeded, ckpt.StepFailed}[g.r.IntN(3)]
	s := &step{what: fmt.Sprintf("finish %s of %s/%s: %s", key, a.name, name, status)}
	was := ckpt.StepStatus("")
	if r := a.run(name); r != nil {
		was = r.steps[key]
	}
	switch was {
	case "":
		s.code = ckpt.CodeNotFound
		s.adds(a.row(a.scope.Caller, "finish_step", name, key, s.code))
	case ckpt.StepSucceeded:
	default:
		s.adds(a.row(a.scope.Caller, "finish_step", name, key, ""))
	}
	s.change = func() outcome {
		if was != ckpt.StepSucceeded {
			a.run(name).steps[key] = status
		}
		return outcome{}
	}
	s.do = func(h *harness) {
		got, _, err := h.store.FinishStep(h.ctx, a.scope, ckpt.RunRef{Agent: a.name, Run: name}, ckpt.StepRequest{Key: key, Status: status})
		answered(got, err)(h, s.code)
	}
	return s
}

// stranger tries to change a checkpoint of another owner: it gets the same
// answer as for a missing one, and the attempt is recorded under its own name.
func (g *generator) stranger() *step {
	c, ok := g.that(func(*mCheckpoint) bool { return true })
	if !ok {
		return nil
	}
	other := ann
	if c.run.agent.scope == ann {
		other = bob
	}
	s := &step{code: ckpt.CodeNotFound}
	row := mAudit{who: other.Caller.Owner, owner: other.Caller.Owner, subject: c.id, outcome: string(s.code)}
	switch g.r.IntN(3) {
	case 0:
		row.action = "change"
		s.do = func(h *harness) {
			got, err := h.store.Patch(h.ctx, other, c.id, ckpt.CheckpointPatch{Pinned: new(bool)})
			answered(got, err)(h, s.code)
		}
	case 1:
		row.action = "delete"
		s.do = func(h *harness) {
			got, err := h.store.Delete(h.ctx, other, c.id)
			answered(got, err)(h, s.code)
		}
	case 2:
		row.action, row.agent = "restore", "alpha"
		s.do = func(h *harness) {
			got, _, err := h.store.Restore(h.ctx, other, ckpt.RestoreRequest{Agent: "alpha", Checkpoint: c.id})
			answered(got, err)(h, s.code)
		}
	}
	s.what = fmt.Sprintf("%s tries to %s %s", other.Caller.Owner, row.action, c.id)
	return s.adds(row)
}

// erase removes all of an agent. No row of a removal names its checkpoints.
func (g *generator) erase() *step {
	a, _ := pick(g, g.agents)
	sc := g.as(a)
	s := &step{what: fmt.Sprintf("erase %s/%s", a.scope.Caller.Owner, a.name)}
	if !a.exists {
		s.code = ckpt.CodeNotFound
	}
	s.change = func() outcome {
		a.exists, a.runs = false, nil
		g.sent = slices.DeleteFunc(g.sent, func(sent *mSent) bool { return sent.agent == a })
		return outcome{}
	}
	s.do = func(h *harness) {
		got, err := h.store.Erase(h.ctx, sc, a.name)
		answered(got, err)(h, s.code)
	}
	return s.adds(a.row(sc.Caller, "erase", "", "", s.code))
}

// tooLarge is a save that exceeds the quota of its owner.
func (g *generator) tooLarge() *step {
	a, name := g.live()
	req := ckpt.SaveRequest{ID: g.id(), Agent: a.name, Run: name, Kind: ckpt.KindRoutine, ContentType: "application/octet-stream", State: noise(g.r.Uint64(), modelQuota+1)}
	s := &step{what: fmt.Sprintf("save more than the quota into %s/%s", a.name, name), code: ckpt.CodeQuota}
	s.do = func(h *harness) {
		got, err := h.store.Save(h.ctx, a.scope, &req)
		answered(got, err)(h, s.code)
	}
	return s.adds(a.row(a.scope.Caller, "save", name, req.ID, s.code))
}

// modelQuota is more than the steps of a test store.
const modelQuota = 8 << 20

// time lets time pass, often exactly to the moment at which something reaches
// its age.
func (g *generator) time() *step {
	d := []time.Duration{time.Millisecond, time.Second, time.Minute, 10*time.Minute - time.Millisecond, 10 * time.Minute,
		time.Hour, ckpt.Day, 7 * ckpt.Day, 31 * ckpt.Day}[g.r.IntN(9)]
	var moments []time.Time
	for _, r := range g.runs() {
		if r.ended {
			moments = append(moments, r.endedAt.Add(time.Duration(r.agent.policy.EndedKeep)))
		}
		for _, c := range r.list {
			if c.kind == ckpt.KindRecovery {
				moments = append(moments, c.at.Add(time.Duration(r.agent.policy.RecoveryKeep)))
			}
			if c.kind == ckpt.KindPreOperation && c.operation == "" {
				moments = append(moments, c.at.Add(time.Duration(r.agent.policy.PreOperationKeep)))
			}
		}
	}
	if at, ok := pick(g, moments); ok && g.chance(60) && at.After(g.wall) && at.Sub(g.wall) < 100*ckpt.Day {
		d = max(at.Sub(g.wall)-time.Duration(g.r.IntN(2))*time.Millisecond, 0)
	}
	return &step{still: true, what: "time passes: " + d.String(), change: func() outcome { g.pass(d); return outcome{} },
		do: func(h *harness) { h.clocks.pass(d); h.guard.Now() }}
}

func (g *generator) clockJump() *step {
	by := []time.Duration{10 * 365 * ckpt.Day, -10 * 365 * ckpt.Day, -ckpt.Day, -ckpt.Day, 8 * ckpt.Day, time.Hour, -3 * time.Second,
		time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC).Sub(g.wall)}[g.r.IntN(8)]
	if to := g.wall.Add(by); to.Year() < 2000 || to.Year() > 2100 {
		by = newClock().now.Sub(g.wall)
	}
	if by.Abs() <= 2*time.Second {
		return nil
	}
	return &step{still: true, what: "the clock jumps by " + by.String(), change: func() outcome { g.jump(by); return outcome{} },
		do: func(h *harness) { h.clocks.jump(by); h.guard.Now() }}
}

// round makes a round of the worker, sometimes after a dry run.
func (g *generator) round() *step {
	dry, slice := g.chance(30), 1+g.r.IntN(8)
	var due map[string]mCause
	var dropped []*mRun
	return &step{what: fmt.Sprintf("round, slice %d, dry first %t", slice, dry), audit: func() (rows []mAudit) {
		for _, r := range dropped {
			rows = append(rows, r.agent.row(ckpt.Caller{Owner: "daemon"}, "drop_run", r.name, "", ""))
		}
		return rows
	}, change: func() outcome {
		due = g.due(g.runs()...)
		return outcome{must: due, may: due, settled: func([]string) {
			dropped = g.drop()
			g.forget()
			g.noteJudged()
			g.dirty, g.unjudged = false, g.unjudged && !g.trusted()
		}}
	}, do: func(h *harness) {
		guarded := !g.trusted()
		if dry {
			if got := h.round(true, slice); got.Guarded != guarded || !h.same("dry round", removals(got.Would), ids(due)) {
				h.fail("the dry round answered %+v", got)
			}
		}
		got := h.round(false, slice)
		h.after(func() {
			if got.Removed != len(due) || got.Dropped != len(dropped) || got.Guarded != guarded || got.Failed > 0 || got.PutOff {
				h.fail("the round answered %+v, the model removes %d and drops %d", got, len(due), len(dropped))
			}
		})
	}}
}

// forget forgets the keys of saves that are more than seven days old. Later
// saves with such an id are not tested here.
func (g *generator) forget() {
	if g.trusted() {
		before := g.wall.Add(-7 * ckpt.Day)
		g.sent = slices.DeleteFunc(g.sent, func(s *mSent) bool { return s.at.Before(before) })
	}
}

func (g *generator) noteJudged() {
	switch {
	case g.trusted():
		g.judged = g.wall
	case g.judged.After(g.wall):
		g.judged = time.Time{}
	}
}

// prune prunes one agent, an owner, or all, after a dry run.
func (g *generator) prune() *step {
	a, _ := pick(g, g.agents)
	sc, r := a.scope, ckpt.PruneRequest{}
	runs := a.runs
	switch {
	case g.chance(30):
		sc.Caller, sc.Target = root.Caller, ckpt.AllOwners
		runs = g.runs()
	case g.chance(30):
		runs = nil
		for _, o := range g.agents {
			if o.scope == a.scope {
				runs = append(runs, o.runs...)
			}
		}
	default:
		r.Agent = a.name
	}
	s := &step{what: fmt.Sprintf("prune %s of %s", r.Agent, sc.Whose()), by: sc.Caller}
	row := mAudit{sc.Caller.Owner, "prune", sc.Whose(), r.Agent, "", "", "done"}
	looked := row // the row of an administrator's dry run
	looked.action = "admin_read_prune"
	switch {
	case r.Agent != "" && !a.exists:
		s.code = ckpt.CodeNotFound
		row.outcome = string(s.code) // only of the prune: a dry run is not a write
		s.adds(row)
	case sc.Foreign():
		s.adds(looked, row)
	default:
		s.adds(row)
	}
	var due map[string]mCause
	s.change = func() outcome {
		due = g.due(runs...)
		return exactly(due)
	}
	s.do = func(h *harness) {
		guarded := !g.trusted()
		for _, dry := range []bool{true, false} {
			r.DryRun = dry
			got, _, err := h.store.Prune(h.ctx, sc, r, "")
			got, ok := answered(got, err)(h, s.code)
			if !ok {
				continue
			}
			if got.DryRun != dry || got.Guarded != guarded {
				h.fail("the prune answered %+v", got)
			}
			h.same(fmt.Sprintf("removed, dry %t", dry), removals(got.Removed), ids(due))
		}
	}
	return s
}

// reopen stops the store and starts it again.
func (g *generator) reopen() *step {
	return &step{still: true, what: "reopen", audit: started, change: func() outcome { g.held = g.mono; return outcome{} }, do: (*harness).reopen}
}

// crash continues with a copy of the files that is made while the store is
// open, as after a kill.
func (g *generator) crash() *step {
	return &step{still: true, what: "crash", audit: started, change: func() outcome { g.held = g.mono; return outcome{} }, do: (*harness).crash}
}

func started() []mAudit { return []mAudit{{who: "daemon", action: "start", outcome: "done"}} }

func ids(due map[string]mCause) (list []string) {
	for id := range due {
		list = append(list, id)
	}
	return list
}

func removals(list []ckpt.Removal) (ids []string) {
	for _, r := range list {
		ids = append(ids, r.Checkpoint)
	}
	return ids
}
