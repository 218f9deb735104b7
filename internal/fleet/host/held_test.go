package host

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// asks asks a question of an agent as its owner, ships it, and returns the prompt.
func (h *seenHost) asks(owner, agent, question string) *ckpt.Prompt {
	h.t.Helper()
	p, _, err := h.store.AskQuestion(h.t.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: owner}},
		ckpt.QuestionRequest{Agent: agent, Run: "main", Question: question, Choices: ckpt.Choices{"yes", "no"}})
	if err != nil {
		h.t.Fatal(err)
	}
	again(h.t, h.ship)
	return p
}

// asked returns the hosts and questions that a caller sees, over all pages.
func (h *seenHost) asked(caller ckpt.Caller, query string) (list []string, sealed int64) {
	h.t.Helper()
	for next := ""; ; {
		var page survey.FleetPrompts
		if err := json.Unmarshal([]byte(h.ask(caller, "/v1/fleet/prompts?limit=1"+query+next, 200)), &page); err != nil {
			h.t.Fatal(err)
		}
		for _, p := range page.Prompts {
			list = append(list, p.Host+" "+p.Owner+" "+p.Question)
		}
		sealed += page.Unopened
		if page.Next == "" {
			return list, sealed
		}
		if next = "&before=" + string(page.Next); len(list) > 20 {
			h.t.Fatalf("the pages do not end: %q", list)
		}
	}
}

func (h *seenHost) wantAsked(caller ckpt.Caller, query string, want ...string) {
	h.t.Helper()
	if got, sealed := h.asked(caller, query); !slices.Equal(got, want) || sealed != 0 {
		h.t.Errorf("%s sees with %q the questions %q and %d that are sealed, want %q", caller.Owner, query, got, sealed, want)
	}
}

// TestFleetHeld reads prompts and checkpoints of other hosts, which only the engine has. Only callers who may see
// them get them.
func TestFleetHeld(t *testing.T) {
	t.Parallel()
	engine, url := fleetEngine(t)
	here, there := newSeenHost(t, url, "here"), newSeenHost(t, url, "there")
	ann, bob, admin := ckpt.Caller{Owner: "uid:1001"}, ckpt.Caller{Owner: "uid:1002"}, ckpt.Caller{Owner: "uid:0", Admin: true}
	for _, h := range []*seenHost{here, there} {
		h.has(ann.Owner, "a")
	}
	there.asks(ann.Owner, "a", "first?")
	answered := there.asks(ann.Owner, "a", "answered?")
	if _, _, err := there.store.AnswerPrompt(t.Context(), ckpt.Scope{Caller: ann}, ckpt.PromptAnswer{ID: answered.ID, Choice: "yes"}); err != nil {
		t.Fatal(err)
	}
	here.asks(ann.Owner, "a", "second?")
	there.asks(ann.Owner, "a", "third?")
	first, second, third := "there uid:1001 first?", "here uid:1001 second?", "there uid:1001 third?"

	here.wantAsked(admin, "", third, second, first)
	here.wantAsked(admin, "&host=there", third, first)
	here.wantAsked(admin, "&owner=uid:1001&agent=a", third, second, first)
	here.wantAsked(admin, "&agent=b")
	here.wantAsked(ann, "", second)
	here.wantAsked(bob, "")
	there.mapped(map[string]string{"uid:1001": "acme/build"})
	here.mapped(map[string]string{"uid:1002": "acme/build"})
	here.wantAsked(bob, "", third, first)
	here.wantAsked(ann, "", second)
	here.wantAsked(admin, "&principal=acme/build", third, first)
	here.ask(ann, "/v1/fleet/prompts?owner=*", http.StatusForbidden)
	var reads int
	if err := here.store.RO.Get(&reads, `SELECT count(*) FROM audit_log WHERE action = 'admin_read_fleet_prompts'`); err != nil || reads == 0 {
		t.Errorf("what an administrator reads has %d rows, %v", reads, err)
	}

	heldCheckpoints(t, here, there, engine)
}

// savesOf saves two states of an agent, ships them, and returns their ids.
func (h *seenHost) savesOf(owner, agent string) (ids []string) {
	h.t.Helper()
	for _, state := range []string{`{"n":1,"history":"` + strings.Repeat("0123456789", 900) + `"}`, `{"n":2,"history":"` + strings.Repeat("0123456789", 900) + `more"}`} {
		c, err := h.store.Save(h.t.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: owner}}, &ckpt.SaveRequest{Agent: agent,
			Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(state), Labels: ckpt.Labels{"of": agent}})
		if err != nil {
			h.t.Fatal(err)
		}
		ids = append(ids, c.ID)
	}
	again(h.t, h.ship)
	return ids
}

func heldCheckpoints(t *testing.T, here, there *seenHost, engine *pgtest.Server) {
	t.Helper()
	ann, bob, admin := ckpt.Caller{Owner: "uid:1001"}, ckpt.Caller{Owner: "uid:1002"}, ckpt.Caller{Owner: "uid:0", Admin: true}
	ids := there.savesOf(ann.Owner, "a")
	show := func(id string) string { return "/v1/fleet/checkpoints/" + id }
	var want, got map[string]any
	for _, to := range []struct {
		h      *seenHost
		caller ckpt.Caller
		into   *map[string]any
	}{{there, ann, &want}, {here, bob, &got}} {
		if err := json.Unmarshal([]byte(to.h.ask(to.caller, show(ids[1]), 200)), to.into); err != nil {
			t.Fatal(err)
		}
	}
	want["stored_size"], got["stored_size"] = 0, 0
	if a, b := marshal(t, want), marshal(t, got); a != b {
		t.Errorf("from the engine the checkpoint is\n%s\nand on its host\n%s", b, a)
	}
	for caller, status := range map[*ckpt.Caller]int{&admin: 200, &bob: 200, &ann: 404} {
		here.ask(*caller, show(ids[0])+"?state=false", status)
		here.ask(*caller, show(ids[0])+"/diff/"+ids[1], status)
	}
	if told := here.ask(bob, show(ids[0])+"/diff/"+ids[1], 200); !strings.Contains(told, `"/n"`) {
		t.Errorf("the difference is %s", told)
	}
	mine := here.savesOf(bob.Owner, "b")
	if told := here.ask(bob, show(mine[0])+"/diff/"+ids[1], 200); !strings.Contains(told, `"/n"`) {
		t.Errorf("the difference to a checkpoint of this host is %s", told)
	}
	if told := here.ask(bob, show("019cad25-8e6c-7a5f-9d0e-3f2f6d3c1a02"), 404); !strings.Contains(told, "neither on this host nor in the fleet") {
		t.Errorf("of one that nobody has is told %s", told)
	}

	there.ship.keys = keysIn(keyFile(t))
	there.ship.renamed.Store(true)
	sealed := there.savesOf(ann.Owner, "a")
	there.asks(ann.Owner, "a", "sealed?")
	if told := here.ask(bob, show(sealed[1]), 409); !strings.Contains(told, "does not have the key") || strings.Contains(told, "sealed with *") {
		t.Errorf("a user without the key is told %s", told)
	}
	if told := here.ask(admin, show(sealed[1]), 409); !strings.Contains(told, "fleet.key_file") || !strings.Contains(told, "sealed with") {
		t.Errorf("an administrator without the key is told %s", told)
	}
	if list, n := here.asked(admin, ""); n != 4 || len(list) != 1 { // the question shipped all prompts of the run again
		t.Errorf("without the key the questions are %q, and %d are sealed", list, n)
	}
	here.ship.keys = there.ship.keys
	if told := here.ask(bob, show(sealed[1]), 200); !strings.Contains(told, `"n":2`) {
		t.Errorf("with the key the checkpoint is %.200s", told)
	}
	if list, n := here.asked(admin, ""); n != 0 || len(list) != 4 {
		t.Errorf("with the key the questions are %q, and %d are sealed", list, n)
	}

	engine.Stop()
	here.ask(bob, show(ids[0]), http.StatusServiceUnavailable)
	here.ask(bob, show(mine[0]), 200) // this one is on this host
	here.ask(bob, "/v1/fleet/prompts", http.StatusServiceUnavailable)
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
