package db_test

import (
	"slices"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// TestTheEndOfTheLogComesFirst pages through the log newest first, and gets the same rows as oldest first.
func TestTheEndOfTheLogComesFirst(t *testing.T) {
	t.Parallel()
	s, _ := busyLog(t)
	for _, sc := range []ckpt.Scope{ann, root} {
		all, err := s.Audit(t.Context(), sc, ckpt.AuditFilter{Limit: ckpt.MaxLimit})
		must(t, err)
		var got []int64
		for before := int64(0); ; {
			page, err := s.Audit(t.Context(), sc, ckpt.AuditFilter{Newest: true, Before: before, Limit: 3})
			must(t, err)
			for _, row := range page.Audit {
				if row.Action != "admin_read_audit" { // a row that this test made
					got = append(got, row.N)
				}
			}
			if page.Next == nil {
				break
			}
			before = *page.Next
		}
		var want []int64
		for _, row := range slices.Backward(all.Audit) {
			if row.Action != "admin_read_audit" {
				want = append(want, row.N)
			}
		}
		if len(want) < 7 || !slices.Equal(got, want) {
			t.Errorf("%s: newest first %v, want %v", sc.Caller.Owner, got, want)
		}
	}
}

// TestRowsOfTheLogAreFound: by run, by caller, by outcome, by time, and decisions without the routine requests of
// agents.
func TestRowsOfTheLogAreFound(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	startRun(t, s, "a", "r", 1)
	startRun(t, s, "a", "other", 2)
	r := request("a", ckpt.KindRoutine, `1`)
	r.Run = "r"
	_, err := s.Save(t.Context(), as(1), r)
	must(t, err)
	_, _, err = s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Run: "none"})
	wantCode(t, err, ckpt.CodeNotFound)
	c.add(time.Hour)
	since := ckpt.At(c.Now())
	c.add(time.Minute)
	dies(t, s, "a", "r")
	find := func(f ckpt.AuditFilter) (actions []string) {
		t.Helper()
		page, err := s.Audit(t.Context(), ann, f)
		must(t, err)
		for _, row := range page.Audit {
			actions = append(actions, row.Action)
		}
		return actions
	}
	for _, tt := range []struct {
		name string
		f    ckpt.AuditFilter
		want []string
	}{
		{"a run", ckpt.AuditFilter{Run: "r"}, []string{"start_run", "save", "interrupt_run"}},
		{"the daemon", ckpt.AuditFilter{Who: "daemon"}, []string{"interrupt_run"}},
		{"refused", ckpt.AuditFilter{Outcome: ckpt.OutcomeRefused}, []string{"restore"}},
		{"a code", ckpt.AuditFilter{Outcome: "not_found"}, []string{"restore"}},
		{"done", ckpt.AuditFilter{Outcome: "done", Run: "other"}, []string{"start_run"}},
		{"since", ckpt.AuditFilter{Since: since}, []string{"interrupt_run"}},
		{"decisions, newest first", ckpt.AuditFilter{Action: ckpt.AuditDecisions, Newest: true}, []string{"interrupt_run", "restore", "start_run", "start_run"}},
		{"nobody", ckpt.AuditFilter{Who: "uid:9"}, nil},
	} {
		if got := find(tt.f); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if _, err := s.Audit(t.Context(), ann, ckpt.AuditFilter{Before: 3}); ckpt.CodeOf(err) != ckpt.CodeInvalid {
		t.Errorf("before without newest first: %v", err)
	}
}

// TestTheDaemonVerifiesItsChain: administrators can verify the chain, and a change in it is found.
func TestTheDaemonVerifiesItsChain(t *testing.T) {
	t.Parallel()
	s, path := busyLog(t)
	v, err := s.VerifyChain(t.Context(), root)
	must(t, err)
	if !v.OK || len(v.Problems) != 0 || v.Rows < 7 || len(v.Head) != 64 {
		t.Errorf("a sound log: %+v", v)
	}
	if got := sqlite3(t, path, `SELECT count(*) FROM audit_log WHERE action = 'verify' AND who = 'uid:0'`); got != "1" {
		t.Errorf("%s rows say who verified", got)
	}
	_, err = s.VerifyChain(t.Context(), ann)
	wantCode(t, err, ckpt.CodeDenied)
	must(t, s.Close())
	forge(t, path, "UPDATE acts SET pid = 7 WHERE n = 3;")
	s = openWith(t, options(path, newClock()))
	if v, err = s.VerifyChain(t.Context(), root); err != nil || v.OK || !slices.Contains(v.Problems, "audit_chain row 3: its hash does not match its contents") {
		t.Errorf("a row was changed: %+v %v", v, err)
	}
}

// TestFindingsOfAllRuns: one call returns the findings of all runs of an owner, newest first.
func TestFindingsOfAllRuns(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	var since ckpt.Time
	for i, run := range []string{"r1", "r2", "r3"} {
		startRun(t, s, "a", run, 1)
		critical(t, s, "a", run, "bad "+run)
		c.add(time.Minute)
		if i == 0 {
			since = ckpt.At(c.Now())
		}
	}
	_, _, err := s.PostFinding(t.Context(), bob, "a", ckpt.FindingRequest{Rule: "other", Severity: ckpt.SeverityWarn, Message: "bob's"})
	must(t, err)
	find := func(sc ckpt.Scope, f survey.FindingsQuery) (messages []string) {
		t.Helper()
		for {
			page, err := s.Findings(t.Context(), sc, f)
			must(t, err)
			for _, one := range page.Findings {
				messages = append(messages, one.Message)
			}
			if page.Next == "" {
				return messages
			}
			f.Before = string(page.Next)
		}
	}
	if got := find(ann, survey.FindingsQuery{Limit: 2}); !slices.Equal(got, []string{"bad r3", "bad r2", "bad r1"}) {
		t.Errorf("ann has %q", got)
	}
	if got := find(ann, survey.FindingsQuery{Since: since, Rule: "own", Severity: ckpt.SeverityCritical}); !slices.Equal(got, []string{"bad r3", "bad r2"}) {
		t.Errorf("since %s: %q", since, got)
	}
	if got := find(root, survey.FindingsQuery{Rule: "other"}); !slices.Equal(got, []string{"bob's"}) {
		t.Errorf("an administrator finds %q", got)
	}
	page, err := s.Findings(t.Context(), ann, survey.FindingsQuery{Agent: "a", Run: "r2"})
	must(t, err)
	_, _, err = s.Dismiss(t.Context(), ann, ckpt.DismissRequest{ID: page.Findings[0].ID, Reason: "none"})
	must(t, err)
	if got := find(ann, survey.FindingsQuery{}); len(got) != 2 {
		t.Errorf("after one was dismissed: %q", got)
	}
	if got := find(ann, survey.FindingsQuery{Closed: true}); len(got) != 3 {
		t.Errorf("with the closed ones: %q", got)
	}
}
