package journal_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// graph puts a checkpoint of LangGraph, with a write of a task.
func (w *world) graph(thread, id string) error {
	th := ckpt.GraphThread{Thread: thread}
	ctx := w.t.Context()
	_, err := w.store.GraphPut(ctx, ann, &ckpt.GraphPut{Agent: "g", GraphThread: th, Metadata: ckpt.JSON(`{"step":1}`),
		Checkpoint: ckpt.JSON(fmt.Sprintf(`{"v":4,"id":%q,"ts":"2026-01-01T00:00:00+00:00","channel_versions":{"x":1},"versions_seen":{}}`, id)),
		Values:     []ckpt.GraphValue{{Channel: "x", Version: ckpt.JSON(`1`), GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(`{"y":1}`)}}}})
	if err != nil {
		return err
	}
	_, err = w.store.GraphPutWrites(ctx, ann, &ckpt.GraphPutWrites{Agent: "g", GraphThread: th, Checkpoint: id, Writes: []ckpt.GraphWrite{
		{Task: "t", Path: "p", Channel: "x", GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(`1`)}}}})
	return err
}

// TestCopyOfEachAction makes the actions that the histories of TestCopy leave out, ships after each, and fails if
// an action never occurred.
func TestCopyOfEachAction(t *testing.T) {
	w := newWorld(t, 1)
	s, ctx, ref := w.store, t.Context(), ckpt.RunRef{Agent: "a", Run: "main"}
	admin := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0", Admin: true}}
	var prompt, finding string
	text := &strings.Builder{}
	for _, act := range []struct {
		action string
		do     func() error
	}{
		{"save", func() error {
			_, err := s.Save(ctx, ann, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: w.state()})
			return err
		}},
		{"ask", func() error {
			p, _, err := s.AskQuestion(ctx, ann, ckpt.QuestionRequest{Agent: "a", Run: "main", Key: "q", Question: "Deploy?"})
			if err == nil {
				prompt = p.ID
			}
			return err
		}},
		{"answer_prompt", func() error {
			_, _, err := s.AnswerPrompt(ctx, ann, ckpt.PromptAnswer{ID: prompt, Data: ckpt.JSON(`"yes"`)})
			return err
		}},
		{"finding", func() error {
			f, _, err := s.PostFinding(ctx, ann, "a", ckpt.FindingRequest{Run: "main", Rule: "own", Severity: ckpt.SeverityCritical, Message: "It went wrong."})
			if err == nil {
				finding = f.ID
			}
			return err
		}},
		{"dismiss_finding", func() error { _, _, err := s.Dismiss(ctx, ann, ckpt.DismissRequest{ID: finding}); return err }},
		{"set_policy", func() error { _, err := s.SetOwnPolicy(ctx, ann, "a", []byte(`{"routine_keep":2}`)); return err }},
		{"set_owner_policy", func() error { _, err := s.SetOwnerPolicy(ctx, ann, []byte(`{"pre_operation_keep":"50h"}`)); return err }},
		{"set_daemon_policy", func() error { return s.SetDaemonPolicy([]byte(`{"recovery_keep":"48h"}`)) }},
		{"set_principals", func() error { return s.SetIdentityMap(`{"principals":{"uid:1000":"acme/build"},"realms":{}}`) }},

		{"engine_went_back", func() error { return s.NoteWentBack(2, 1) }},
		{"prune", func() error { _, _, err := s.Prune(ctx, ann, ckpt.PruneRequest{Agent: "a"}, ""); return err }},
		{"graph_writes", func() error { return w.graph("one", "1ef0a4d5-0000-6000-8000-000000000001") }},
		{"copy_thread", func() error {
			_, err := s.GraphCopyThread(ctx, ann, ckpt.GraphCopy{Agent: "g", From: "one", To: "two"})
			return err
		}},
		{"remove", func() error {
			if err := w.graph("one", "1ef0a4d5-0000-6000-8000-000000000002"); err != nil {
				return err
			}
			w.ship(4000)
			before := w.server.Rows("fleet", `SELECT count(*) FROM fleet_rows WHERE kind = 'graph_write'`)
			defer func() {
				w.ship(4000)
				t.Log("writes of tasks were", before, "and are", w.server.Rows("fleet", `SELECT count(*) FROM fleet_rows WHERE kind = 'graph_write'`))
			}()
			_, err := s.GraphPrune(ctx, ann, ckpt.GraphPrune{Agent: "g", Threads: []string{"one"}, Strategy: ckpt.GraphKeepLatest})
			return err
		}},
		{"delete_thread", func() error { _, err := s.GraphDeleteThread(ctx, ann, "g", "two"); return err }},
		{"export", func() error { return s.Export(ctx, ann, "a", text) }},
		{"import_run", func() error {
			_, err := s.Import(ctx, ann, ckpt.ImportRequest{Agent: "b"}, strings.NewReader(text.String()))
			return err
		}},
		{"end_run", func() error {
			_, _, err := s.EndRun(ctx, ann, ref, ckpt.EndRequest{Status: ckpt.RunCompleted})
			return err
		}},
		{"clear_run", func() error { _, err := s.ClearRun(ctx, ann, ckpt.RunRef{Agent: "b", Run: "main"}); return err }},
		{"delete_run", func() error { _, err := s.DeleteRun(ctx, ann, ref, false); return err }},
		{"erase", func() error {
			_, err := s.Erase(ctx, admin, "nobody")
			_ = err
			_, err = s.Erase(ctx, ann, "b")
			return err
		}},
	} {
		if err := act.do(); err != nil {
			t.Fatalf("%s: %v", act.action, err)
		}
		w.ship(4000)
		if diff := cmp.Diff(w.here(), w.there()); diff != "" {
			t.Errorf("after %s the copy (+) is not as the original (-):\n%.3000s", act.action, diff)
		}
		if seen := w.server.Rows("fleet", `SELECT DISTINCT action FROM fleet_audit`); !slices.Contains(seen, act.action) {
			t.Errorf("the action %s never occurred, there are %q", act.action, seen)
		}
	}
}
