package db_test

import (
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// TestSecretsPolicy: each mode has its effect, and no message, finding or audit
// row contains the value.
func TestSecretsPolicy(t *testing.T) {
	t.Parallel()
	const state = `{"config":{"password":"canary-hunter2"},"n":1}`
	for mode, want := range map[ckpt.SecretsMode]struct {
		code     ckpt.Code
		findings string
		kept     bool
	}{
		ckpt.SecretsOff:    {"", "0", true},
		ckpt.SecretsWarn:   {"", "1", true},
		ckpt.SecretsRedact: {"", "1", false},
		ckpt.SecretsReject: {ckpt.CodeInvalid, "0", false},
	} {
		t.Run(string(mode), func(t *testing.T) {
			c := newClock()
			o := options(t.TempDir()+"/ckpt.db", c)
			o.Secrets = secrets.Scan{}
			s := openWith(t, o)
			p := ckpt.DefaultPolicy()
			p.Secrets = mode
			if _, err := s.SetPolicy(t.Context(), ann, "a", p); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the same place is reported once
				saved, err := s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, state))
				wantCode(t, err, want.code)
				if err != nil {
					if strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "/config/password") {
						t.Errorf("the refusal is %v", err)
					}
					continue
				}
				read, err := s.Checkpoint(t.Context(), ann, saved.ID, true)
				if err != nil || strings.Contains(string(read.State), "canary") != want.kept {
					t.Errorf("read back %s, %v", read.State, err)
				}
			}
			if got := sqlite3(t, "-readonly", o.Path, `SELECT count(*) FROM audit_findings WHERE rule = 'secret' AND evidence LIKE '%/config/password%'`); got != want.findings {
				t.Errorf("%s findings, want %s", got, want.findings)
			}
			says, needs := "The state holds what looks like", 1
			if !want.kept {
				says, needs = "It was redacted, so it is not stored.", 0
			}
			if got := sqlite3(t, "-readonly", o.Path, `SELECT message FROM audit_findings WHERE rule = 'secret'`); want.findings == "1" && !strings.Contains(got, says) {
				t.Errorf("the finding says %q, want %q", got, says)
			}
			if v := overview(t, s, ann); want.findings == "1" && len(v.Needs) != needs {
				t.Errorf("%+v wait for a person, want %d", v.Needs, needs)
			}
			if got := sqlite3(t, "-readonly", o.Path, `SELECT count(*) FROM audit_findings, audit_log WHERE message || evidence || detail || coalesce(reason, '') LIKE '%canary%'`); got != "0" {
				t.Error("a value stands where it must not")
			}
		})
	}
}

// TestASavedSecretIsAnsweredAgain repeats a save after its agent's policy has
// become stricter. It was saved, and the answer must say so.
func TestASavedSecretIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	for _, mode := range []ckpt.SecretsMode{ckpt.SecretsRedact, ckpt.SecretsReject} {
		o := options(t.TempDir()+"/ckpt.db", newClock())
		o.Secrets = secrets.Scan{}
		s := openWith(t, o)
		r := request("a", ckpt.KindRoutine, `{"password":"canary-hunter2"}`)
		r.ID = "01900000-0000-7000-8000-000000000001"
		first, err := s.Save(t.Context(), ann, r)
		must(t, err)
		p := ckpt.DefaultPolicy()
		p.Secrets = mode
		_, err = s.SetPolicy(t.Context(), ann, "a", p)
		must(t, err)
		again, err := s.Save(t.Context(), ann, r)
		if err != nil || !again.Replayed || again.Seq != first.Seq {
			t.Errorf("%s: the same save is answered with %+v, %v", mode, again, err)
		}
	}
}

// TestARepeatedSaveSaysWhatIsStored repeats a save after its agent's policy has begun or ceased to redact. The
// answer describes the state that is stored, not the one that would be stored now.
func TestARepeatedSaveSaysWhatIsStored(t *testing.T) {
	t.Parallel()
	for _, modes := range [][2]ckpt.SecretsMode{{ckpt.SecretsOff, ckpt.SecretsRedact}, {ckpt.SecretsRedact, ckpt.SecretsOff}} {
		for _, id := range []string{"01900000-0000-7000-8000-000000000001", ""} {
			o := options(t.TempDir()+"/ckpt.db", newClock())
			o.Secrets = secrets.Scan{}
			s := openWith(t, o)
			p := ckpt.DefaultPolicy()
			p.Secrets = modes[0]
			_, err := s.SetPolicy(t.Context(), ann, "a", p)
			must(t, err)
			r := request("a", ckpt.KindRoutine, `{"password":"canary-hunter2"}`)
			r.ID, r.IdempotencyKey = id, "key"
			first, err := s.Save(t.Context(), ann, r)
			must(t, err)
			p.Secrets = modes[1]
			_, err = s.SetPolicy(t.Context(), ann, "a", p)
			must(t, err)
			again, err := s.Save(t.Context(), ann, r)
			must(t, err)
			if !again.Replayed || again.SHA256 != first.SHA256 || again.Size != first.Size || again.AsSent != first.AsSent {
				t.Errorf("%v: first %s of %d bytes, as sent: %v; then %s of %d bytes, as sent: %v", modes,
					first.SHA256, first.Size, first.AsSent, again.SHA256, again.Size, again.AsSent)
			}
		}
	}
}

// TestARefusedSecretIsOnRecord: a state that the policy refuses leaves an audit
// row.
func TestARefusedSecretIsOnRecord(t *testing.T) {
	t.Parallel()
	o := options(t.TempDir()+"/ckpt.db", newClock())
	o.Secrets = secrets.Scan{}
	s := openWith(t, o)
	p := ckpt.DefaultPolicy()
	p.Secrets = ckpt.SecretsReject
	_, err := s.SetPolicy(t.Context(), ann, "a", p)
	must(t, err)
	_, err = s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `{"password":"canary-hunter2"}`))
	wantCode(t, err, ckpt.CodeInvalid)
	page, err := s.Audit(t.Context(), root, ckpt.AuditFilter{Action: "save"})
	must(t, err)
	if len(page.Audit) != 1 || page.Audit[0].Outcome != string(ckpt.CodeInvalid) || strings.Contains(string(page.Audit[0].Reason), "canary") {
		t.Errorf("on record is %+v", page.Audit)
	}
}

// TestRestoreThenResume: a run whose operator went back to an earlier
// checkpoint resumes from there, until it saves again.
func TestRestoreThenResume(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 11)
	first := save(t, s, as(11), "a", ckpt.KindRoutine, `1`)
	save(t, s, as(11), "a", ckpt.KindRoutine, `2`)
	p.kill(11)
	if _, _, err := s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: first.ID, Reason: "the second is wrong"}); err != nil {
		t.Fatal(err)
	}
	if plan := claim(t, s, 12); plan.Checkpoint.ID != first.ID {
		t.Errorf("resumes with %+v", plan.Checkpoint)
	}
	third := save(t, s, as(12), "a", ckpt.KindRoutine, `3`)
	p.kill(12)
	if plan := claim(t, s, 13); plan.Checkpoint.ID != third.ID {
		t.Errorf("resumes with %+v", plan.Checkpoint)
	}
}

// twoAttempts begins an operation that becomes uncertain, and then records a second attempt, which a client had spooled. The
// second one failed.
func twoAttempts(t *testing.T, s *db.Store) {
	t.Helper()
	begin := ckpt.OperationRequest{Key: "pay", Name: "pay", State: ckpt.JSON(`{}`)}
	_, _, err := s.BeginOperation(t.Context(), as(11), mainRun, begin)
	must(t, err)
	spooled := as(11)
	spooled.Spooled = ckpt.At(time.Now())
	_, _, err = s.BeginOperation(t.Context(), spooled, mainRun, begin)
	must(t, err)
	_, _, err = s.EndOperation(t.Context(), spooled, mainRun, ckpt.OperationEnd{Key: "pay", Status: ckpt.OperationFailed})
	must(t, err)
}

// TestEveryUncertainAttemptIsAsked: a later attempt that failed does not hide
// an earlier attempt with an unknown outcome.
func TestEveryUncertainAttemptIsAsked(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 11)
	twoAttempts(t, s)
	p.kill(11)
	wantVerdict(t, claim(t, s, 12), ckpt.VerdictAsk)
	if v := overview(t, s, ann); len(v.Needs) != 1 || v.Needs[0].Operation != "pay" || v.Needs[0].Attempt != 1 {
		t.Errorf("the overview lists %+v, want attempt 1 of pay", v.Needs)
	}
	if _, _, err := s.ResolveOperation(t.Context(), ann, mainRun, ckpt.OperationResolution{Key: "pay", Choice: ckpt.ChoiceItDidNot}); err != nil {
		t.Fatal(err)
	}
	if plan := claim(t, s, 12); !plan.Claimed {
		t.Errorf("after it was resolved: %+v", plan)
	}
}

// TestAResolvedAttemptIsNotDoneAgain: an operation that a person resolved as succeeded is done,
// also if a later attempt failed. The person may repeat the call.
func TestAResolvedAttemptIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 11)
	twoAttempts(t, s)
	p.kill(11)
	wantVerdict(t, claim(t, s, 12), ckpt.VerdictAsk)
	for _, again := range []bool{false, true} {
		ended, _, err := s.ResolveOperation(t.Context(), ann, mainRun, ckpt.OperationResolution{Key: "pay", Choice: ckpt.ChoiceItDid})
		must(t, err)
		if ended.Attempt != 1 || ended.Replayed != again {
			t.Errorf("resolved: attempt %d, replayed %t, want attempt 1, replayed %t", ended.Attempt, ended.Replayed, again)
		}
	}
	_, _, err := s.ResolveOperation(t.Context(), ann, mainRun, ckpt.OperationResolution{Key: "pay", Choice: ckpt.ChoiceItDidNot})
	wantCode(t, err, ckpt.CodeConflict)
	if plan := claim(t, s, 12); !plan.Claimed {
		t.Errorf("after it was resolved: %+v", plan)
	}
	o, _, err := s.BeginOperation(t.Context(), as(12), mainRun, ckpt.OperationRequest{Key: "pay", Name: "pay"})
	must(t, err)
	if !o.Replayed || o.Attempt != 1 || o.Status != ckpt.OperationSucceeded {
		t.Errorf("it is begun again: %+v", o)
	}
}
