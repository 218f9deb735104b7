package db_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/outbox"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

func due(t *testing.T, s *db.Store) []outbox.Delivery {
	t.Helper()
	list, _, err := s.DueDeliveries(t.Context(), 10_000)
	expect.OK(t, err)
	return list
}

// TestNoticesOfPrompts: a notice is in the queue as soon as its subject is on
// disk, and is forgotten together with the agent that it is about.
func TestNoticesOfPrompts(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	changed := a.NoticesChanged()
	a.ask(ckpt.QuestionRequest{Key: "0", Question: "nobody is told"})
	expect.Equal(t, "without hooks", len(due(t, a.Store)), 0)
	expect.OK(t, a.SetHooks([]db.Hook{{Name: "ops", Types: ckpt.NoticeTypes}, {Name: "pager", Types: []ckpt.NoticeType{ckpt.NoticeDead}}}))
	p, _ := a.ask(ckpt.QuestionRequest{Key: "1", Question: strings.Repeat("ü", ckpt.MaxNoticeMessage)})
	<-changed
	a.ask(ckpt.QuestionRequest{Key: "1", Question: strings.Repeat("ü", ckpt.MaxNoticeMessage)}) // the same question
	list := due(t, a.Store)
	if len(list) != 1 || list[0].Hook != "ops" || !strings.Contains(string(list[0].Body), p.ID) || len(list[0].Body) > ckpt.MaxNoticeMessage+400 {
		t.Fatalf("due are %+v", list)
	}

	next := a.clock.Now().Add(time.Minute)
	expect.OK(t, a.NoteDelivered(t.Context(), []outbox.Attempt{{Delivery: list[0], State: outbox.Pending, Next: next, Error: "no"}}))
	none, at, err := a.DueDeliveries(t.Context(), 10)
	expect.OK(t, err)
	if len(none) != 0 || !at.Equal(next) {
		t.Errorf("%v at %v", none, at)
	}
	a.clock.add(time.Minute)
	expect.Equal(t, "attempts", due(t, a.Store)[0].Attempts, 1)
	if _, err := a.Erase(t.Context(), ann, "a"); err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "after an erasure", len(due(t, a.Store)), 0)
}

// TestNoticesHoldNoSecrets: what looks like a secret is redacted in a notice, which leaves the host, whatever the policy says about
// what is stored: in a question, in a reason, and where a text is cut. The prompt itself keeps the text, as the policy says.
func TestNoticesHoldNoSecrets(t *testing.T) {
	t.Parallel()
	c := newClock()
	o := options(t.TempDir()+"/ckpt.db", c)
	o.Resume, o.Processes, o.Fits, o.Secrets = resume.Make, &processes{dead: map[int]bool{}}, drift.Fits, secrets.Scan{}
	a := &asker{TB: t, Store: openWith(t, o), clock: c, run: "main"}
	expect.OK(t, a.SetHooks([]db.Hook{{Name: "ops", Types: ckpt.NoticeTypes}}))
	const token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	for i, mode := range []ckpt.SecretsMode{ckpt.SecretsWarn, ckpt.SecretsOff} {
		policy := ckpt.DefaultPolicy()
		policy.Secrets = mode
		_, err := a.SetPolicy(t.Context(), ann, "a", policy)
		expect.OK(t, err)
		for j, question := range []string{
			"may I use " + token + "?",
			"a\"b\\ " + token,
			strings.Repeat("x", ckpt.MaxNoticeMessage-20) + " " + token,
		} {
			p, _ := a.ask(ckpt.QuestionRequest{Key: fmt.Sprint(i, j), Question: question})
			if !strings.Contains(p.Question, token) {
				t.Errorf("with secrets %s the question is stored as %q", mode, p.Question)
			}
		}
	}
	if _, err := a.Announce(t.Context(), ckpt.NoticeStorage, "the backup to https://user:"+token+"@host failed"); err != nil {
		t.Fatal(err)
	}
	list := due(t, a.Store)
	expect.Equal(t, "notices", len(list), 7)
	for _, d := range list {
		if strings.Contains(string(d.Body), token[:12]) || !json.Valid(d.Body) {
			t.Errorf("%s", d.Body)
		}
	}
}

// TestTheQueueOfNoticesIsBounded: the queue is bounded for each owner and in
// total, and a notice that no hook waits for is forgotten.
func TestTheQueueOfNoticesIsBounded(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	expect.OK(t, a.SetHooks([]db.Hook{{Name: "ops", Types: ckpt.NoticeTypes}, {Name: "old", Types: ckpt.NoticeTypes}}))
	for i := range 510 {
		a.ask(ckpt.QuestionRequest{Key: fmt.Sprint(i), Question: "?"})
	}
	list := due(t, a.Store)
	expect.Equal(t, "deliveries", len(list), 1000)
	st, err := a.NotifyStatus(t.Context())
	expect.OK(t, err)
	expect.Equal(t, "dropped", st.Dropped, 10)
	if _, err := a.Announce(t.Context(), ckpt.NoticeStorage, "the disk is full"); err != nil { // others still have room
		t.Fatal(err)
	}
	expect.OK(t, a.SetHooks([]db.Hook{{Name: "ops", Types: ckpt.NoticeTypes}}))
	var attempts []outbox.Attempt
	for _, d := range due(t, a.Store) {
		expect.Equal(t, "hook", d.Hook, "ops")
		attempts = append(attempts, outbox.Attempt{Delivery: d, State: outbox.Delivered})
	}
	expect.Equal(t, "that wait for a hook", len(attempts), 501)
	expect.OK(t, a.NoteDelivered(t.Context(), attempts))
	counts := func() (delivered, dead int64) {
		st, err := a.NotifyStatus(context.Background())
		expect.OK(t, err)
		for _, h := range st.Hooks {
			delivered, dead = delivered+h.Delivered, dead+h.Dead
		}
		return delivered, dead
	}
	for _, step := range []struct {
		after           time.Duration
		delivered, dead int64
	}{{0, 501, 501}, {25 * time.Hour, 501, 501}, {7 * 24 * time.Hour, 0, 0}} { // a notice is removed after all its deliveries
		a.clock.add(step.after)
		expect.OK(t, a.ForgetDelivered(t.Context()))
		delivered, dead := counts()
		expect.Equal(t, "delivered", delivered, step.delivered)
		expect.Equal(t, "dead", dead, step.dead)
	}
}

// TestADeadHookHidesNoOther: a hook with many due deliveries leaves room for
// those of the others.
func TestADeadHookHidesNoOther(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	expect.OK(t, a.SetHooks([]db.Hook{{Name: "ops", Types: []ckpt.NoticeType{ckpt.NoticePrompt}}, {Name: "pager", Types: []ckpt.NoticeType{ckpt.NoticeStorage}}}))
	for i := range 20 {
		a.ask(ckpt.QuestionRequest{Key: fmt.Sprint(i), Question: "?"})
	}
	a.clock.add(time.Second)
	_, err := a.Announce(t.Context(), ckpt.NoticeStorage, "the disk is full")
	expect.OK(t, err)
	list, _, err := a.DueDeliveries(t.Context(), 8)
	expect.OK(t, err)
	count := map[string]int{}
	for _, d := range list {
		count[d.Hook]++
	}
	if count["ops"] != 8 || count["pager"] != 1 {
		t.Errorf("due are %v", count)
	}
}
