package db_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// canaryToken is made up. It is assembled from parts so that no scanner of this repository takes it for a real one.
var canaryToken = "glpat" + "-c4n4ryc4n4ryc4n4ryc4"

// screened returns every place besides a state where a request can carry text. Each call writes the text to one of
// them.
func screened(s *db.Store, text string) []struct {
	name string
	do   func(context.Context) error
} {
	ref := ckpt.RunRef{Agent: "a", Run: "main"}
	quoted := ckpt.JSON(fmt.Sprintf(`{"out":["use %s now"]}`, text))
	n := 0
	key := func() string { n++; return fmt.Sprint("k", n) }
	step := func(r ckpt.StepRequest) func(context.Context) error {
		return func(ctx context.Context) error {
			if r.Key = key(); r.Name == "" {
				r.Name = "tool"
			}
			_, _, err := s.BeginStep(ctx, ann, ref, r)
			return err
		}
	}
	ended := func(end ckpt.OperationEnd) func(context.Context) error {
		return func(ctx context.Context) error {
			end.Key = key()
			if _, _, err := s.BeginOperation(ctx, ann, ref, ckpt.OperationRequest{Key: end.Key, Name: "op", State: ckpt.JSON(`{}`)}); err != nil {
				return err
			}
			_, _, err := s.EndOperation(ctx, ann, ref, end)
			return err
		}
	}
	save := func(change func(*ckpt.SaveRequest)) func(context.Context) error {
		return func(ctx context.Context) error {
			r := request("a", ckpt.KindRoutine, `{}`)
			change(r)
			_, err := s.Save(ctx, ann, r)
			return err
		}
	}
	run := func(r ckpt.RunRequest) func(context.Context) error {
		return func(ctx context.Context) error {
			r.Agent, r.Run = "a", key()
			_, _, err := s.StartRun(ctx, ann, r)
			return err
		}
	}
	end := func(r ckpt.EndRequest) func(context.Context) error {
		return func(ctx context.Context) error {
			of := ckpt.RunRef{Agent: "a", Run: key()}
			if _, _, err := s.StartRun(ctx, ann, ckpt.RunRequest{Agent: "a", Run: of.Run}); err != nil {
				return err
			}
			r.Status = ckpt.RunFailed
			_, _, err := s.EndRun(ctx, ann, of, r)
			return err
		}
	}
	return []struct {
		name string
		do   func(context.Context) error
	}{
		{"step/name", step(ckpt.StepRequest{Name: text})},
		{"step/args", step(ckpt.StepRequest{Args: quoted})},
		{"step/result", step(ckpt.StepRequest{Status: ckpt.StepSucceeded, Result: quoted})},
		{"step/error", step(ckpt.StepRequest{Status: ckpt.StepFailed, Error: ckpt.Ref("failed with " + text)})},
		{"step/result, finished", func(ctx context.Context) error {
			k := key()
			if _, _, err := s.BeginStep(ctx, ann, ref, ckpt.StepRequest{Key: k, Name: "tool"}); err != nil {
				return err
			}
			_, _, err := s.FinishStep(ctx, ann, ref, ckpt.StepRequest{Key: k, Status: ckpt.StepSucceeded, Result: quoted})
			return err
		}},
		{"operation/name", func(ctx context.Context) error {
			_, _, err := s.BeginOperation(ctx, ann, ref, ckpt.OperationRequest{Key: key(), Name: "run " + text, State: ckpt.JSON(`{}`)})
			return err
		}},
		{"operation/result", ended(ckpt.OperationEnd{Status: ckpt.OperationSucceeded, Result: quoted})},
		{"operation/error", ended(ckpt.OperationEnd{Status: ckpt.OperationFailed, Error: ckpt.Ref(text)})},
		{"event/payload", func(ctx context.Context) error {
			_, _, err := s.Append(ctx, ann, ref, []ckpt.NewEvent{{Type: "t", Payload: quoted}}, "")
			return err
		}},
		{"event/type", func(ctx context.Context) error {
			_, _, err := s.Append(ctx, ann, ref, []ckpt.NewEvent{{Type: text}}, "")
			return err
		}},
		{"checkpoint/labels", save(func(r *ckpt.SaveRequest) { r.Labels = ckpt.Labels{"note": text} })},
		{"checkpoint/labels, by name", save(func(r *ckpt.SaveRequest) { r.Labels = ckpt.Labels{"db_password": "canary-" + text} })},
		{"checkpoint/metadata", save(func(r *ckpt.SaveRequest) { r.Metadata = json.RawMessage(quoted) })},
		{"checkpoint/labels, changed", func(ctx context.Context) error {
			saved, err := s.Save(ctx, ann, request("a", ckpt.KindRoutine, `{}`))
			if err == nil {
				_, err = s.Patch(ctx, ann, saved.ID, ckpt.CheckpointPatch{Labels: &ckpt.Labels{"note": text}})
			}
			return err
		}},
		{"run/goal", run(ckpt.RunRequest{Goal: ckpt.Ref("deploy with " + text)})},
		{"run/workflow", run(ckpt.RunRequest{Workflow: ckpt.Ref(text)})},
		{"run/labels", run(ckpt.RunRequest{Labels: ckpt.Labels{"note": text}})},
		{"run/error", end(ckpt.EndRequest{Error: ckpt.Ref(text)})},
		{"run/result", end(ckpt.EndRequest{Result: quoted})},
		{"run/continuation_prompt", end(ckpt.EndRequest{ContinuationPrompt: ckpt.Ref("go on with " + text)})},
		{"finding/message", func(ctx context.Context) error {
			_, _, err := s.PostFinding(ctx, ann, "a", ckpt.FindingRequest{Rule: "mine", Severity: ckpt.SeverityInfo, Message: "saw " + text})
			return err
		}},
		{"finding/evidence", func(ctx context.Context) error {
			_, _, err := s.PostFinding(ctx, ann, "a", ckpt.FindingRequest{Rule: "mine", Severity: ckpt.SeverityInfo, Message: "saw it", Evidence: quoted})
			return err
		}},
		{"restore/reason", func(ctx context.Context) error {
			if _, err := s.Save(ctx, ann, request("a", ckpt.KindRoutine, `{}`)); err != nil {
				return err
			}
			_, _, err := s.Restore(ctx, ann, ckpt.RestoreRequest{Agent: "a", Reason: "because " + text})
			return err
		}},
		{"resume/reason", func(ctx context.Context) error {
			_, _, err := s.Resume(ctx, ann, ckpt.ResumeRequest{Agent: "a", Run: key(), Reason: "because " + text})
			return err
		}},
	}
}

// screeningOptions are the options of a store that looks for secrets.
func screeningOptions(t *testing.T) db.Options {
	t.Helper()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.Resume, o.Processes, o.Secrets = resume.Make, &processes{dead: map[int]bool{}}, secrets.Scan{}
	return o
}

func setSecrets(t *testing.T, s *db.Store, mode ckpt.SecretsMode) {
	t.Helper()
	p := ckpt.DefaultPolicy()
	p.Secrets = mode
	if _, err := s.SetPolicy(t.Context(), ann, "a", p); err != nil {
		t.Fatal(err)
	}
}

// TestSecretsBesideStates: each mode has its effect wherever a request carries text. After redact and reject, the
// token is nowhere in the files.
func TestSecretsBesideStates(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	for _, mode := range []ckpt.SecretsMode{ckpt.SecretsOff, ckpt.SecretsWarn, ckpt.SecretsRedact, ckpt.SecretsReject} {
		t.Run(string(mode), func(t *testing.T) {
			o := screeningOptions(t)
			s := openWith(t, o)
			setSecrets(t, s, mode)
			for _, place := range screened(s, canaryToken) {
				want := ckpt.Code("")
				if mode == ckpt.SecretsReject {
					want = ckpt.CodeInvalid
				}
				err := place.do(t.Context())
				if ckpt.CodeOf(err) != want || err != nil && strings.Contains(err.Error(), canaryToken) {
					t.Errorf("%s: %v, want the code %q", place.name, err, want)
				}
				where, _, _ := strings.Cut(place.name, ",")
				in, member, _ := strings.Cut(where, "/")
				query := fmt.Sprintf(`SELECT count(*) > 0 FROM audit_findings WHERE rule = 'secret' AND evidence LIKE '%%"in":"%s"%%' AND evidence LIKE '%%"path":"/%s%%'`, in, member)
				found := sqlite3(t, "-readonly", o.Path, query) == "1"
				if warns := mode == ckpt.SecretsWarn || mode == ckpt.SecretsRedact; found != warns {
					t.Errorf("%s: a finding %v, want %v", place.name, found, warns)
				}
			}
			text := string(filesOf(t, o.Path))
			if kept := mode == ckpt.SecretsOff || mode == ckpt.SecretsWarn; strings.Contains(text, canaryToken) != kept {
				t.Errorf("the token is in the files: %v, want %v", !kept, kept)
			}
			if out := sqlite3(t, "-readonly", o.Path, `SELECT * FROM audit_violations`); out != "" {
				t.Error(out)
			}
		})
	}
}

// filesOf returns the contents of all files of the database.
func filesOf(t *testing.T, path string) (all []byte) {
	t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		out, err := tool(t, "cat", path+suffix).Output() // opening them here would drop SQLite's locks
		if err != nil && suffix == "" {
			t.Fatal(err)
		}
		all = append(all, out...)
	}
	return all
}

// TestKeysThatHoldSecrets: a key cannot be redacted, so it is refused.
func TestKeysThatHoldSecrets(t *testing.T) {
	t.Parallel()
	s := openWith(t, screeningOptions(t))
	setSecrets(t, s, ckpt.SecretsRedact)
	ref := ckpt.RunRef{Agent: "a"}
	_, _, err := s.BeginStep(t.Context(), ann, ref, ckpt.StepRequest{Key: canaryToken, Name: "tool"})
	wantCode(t, err, ckpt.CodeInvalid)
	_, _, err = s.BeginOperation(t.Context(), ann, ref, ckpt.OperationRequest{Key: canaryToken, Name: "op", State: ckpt.JSON(`{}`)})
	wantCode(t, err, ckpt.CodeInvalid)
}

// TestARedactedStepIsRepeatable: the same request with the same key gets the first answer.
func TestARedactedStepIsRepeatable(t *testing.T) {
	t.Parallel()
	s := openWith(t, screeningOptions(t))
	setSecrets(t, s, ckpt.SecretsRedact)
	r := ckpt.StepRequest{Key: "k", Name: "tool", Args: ckpt.JSON(`{"password":"hunter22"}`), IdempotencyKey: "once"}
	first, replayed, err := s.BeginStep(t.Context(), ann, ckpt.RunRef{Agent: "a"}, r)
	if err != nil || replayed || string(first.Args) != `{"password":"[redacted]"}` {
		t.Fatalf("%+v, replayed %v, error %v", first, replayed, err)
	}
	again, replayed, err := s.BeginStep(t.Context(), ann, ckpt.RunRef{Agent: "a"}, r)
	if err != nil || !replayed || string(again.Args) != string(first.Args) {
		t.Errorf("%+v, replayed %v, error %v", again, replayed, err)
	}
	if string(r.Args) != `{"password":"hunter22"}` {
		t.Errorf("the caller's own arguments became %s", r.Args)
	}
}

// TestTheFirstSaveAfterARestartObeysThePolicy for every kind of save: JSON, text, and text next to a state.
func TestTheFirstSaveAfterARestartObeysThePolicy(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(*db.Store) error{
		"JSON": func(s *db.Store) error {
			_, err := s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `{"password":"`+canaryToken+`"}`))
			return err
		},
		"text": func(s *db.Store) error {
			_, err := s.Save(t.Context(), ann, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: "text/plain", State: []byte("export DB_PASS=" + canaryToken + "\n")})
			return err
		},
		"a step": func(s *db.Store) error {
			_, _, err := s.BeginStep(t.Context(), ann, ckpt.RunRef{Agent: "a"}, ckpt.StepRequest{Key: "k", Name: "tool", Error: ckpt.Ref(canaryToken), Status: ckpt.StepFailed})
			return err
		},
	} {
		for _, mode := range []ckpt.SecretsMode{ckpt.SecretsRedact, ckpt.SecretsReject} {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				o := screeningOptions(t)
				s := openWith(t, o)
				setSecrets(t, s, mode)
				save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				err := first(openWith(t, o))
				if refused := ckpt.CodeOf(err) == ckpt.CodeInvalid; refused != (mode == ckpt.SecretsReject) {
					t.Errorf("the answer is %v", err)
				}
				if strings.Contains(string(filesOf(t, o.Path)), canaryToken) {
					t.Error("the token is in the files")
				}
			})
		}
	}
}

// TestAPolicyThatCannotBeReadStoresNothing: if a policy is unreadable, nothing is stored, because it is unknown
// what it forbids.
func TestAPolicyThatCannotBeReadStoresNothing(t *testing.T) {
	t.Parallel()
	o := screeningOptions(t)
	s := openWith(t, o)
	setSecrets(t, s, ckpt.SecretsReject)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sqlite3(t, o.Path, `UPDATE agents SET policy = '{"secrets":7}'`)
	s = openWith(t, o)
	if _, err := s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `{"password":"`+canaryToken+`"}`)); err == nil {
		t.Error("the state was saved")
	}
	if _, _, err := s.BeginStep(t.Context(), ann, ckpt.RunRef{Agent: "a"}, ckpt.StepRequest{Key: "k", Name: canaryToken}); err == nil {
		t.Error("the step was recorded")
	}
	if strings.Contains(string(filesOf(t, o.Path)), canaryToken) {
		t.Error("the token is in the files")
	}
}

// TestTextsThatGrow: a text that is too long after its secrets were replaced is refused. The
// metadata of such a checkpoint would not be served, and the rest would not be exported.
func TestTextsThatGrow(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	s := openWith(t, screeningOptions(t))
	setSecrets(t, s, ckpt.SecretsRedact)
	text := func(most int) string { return strings.Repeat("password=abc123 ", most/16) }
	object := func(most int) []byte {
		return []byte(`{"a":[` + strings.Repeat(`{"password":"abc123"},`, most/22-1) + `1]}`)
	}
	ref := ckpt.RunRef{Agent: "a"}
	id := save(t, s, ann, "a", ckpt.KindRoutine, `1`).ID
	labels := ckpt.Labels{"a": text(256)}
	for name, do := range map[string]func() error{
		"metadata": func() error {
			r := request("a", ckpt.KindRoutine, `1`)
			r.Metadata = object(ckpt.MaxMetadata)
			saved, err := s.Save(t.Context(), ann, r)
			if err == nil {
				_, err := s.Checkpoint(t.Context(), ann, saved.ID, false)
				t.Errorf("the checkpoint was saved, and reading it gives %v", err)
			}
			return err
		},
		"labels": func() error {
			r := request("a", ckpt.KindRoutine, `1`)
			r.Labels = labels
			_, err := s.Save(t.Context(), ann, r)
			return err
		},
		"changed labels": func() error {
			_, err := s.Patch(t.Context(), ann, id, ckpt.CheckpointPatch{Labels: &labels})
			return err
		},
		"a step": func() error {
			_, _, err := s.BeginStep(t.Context(), ann, ref, ckpt.StepRequest{Key: "k", Name: text(ckpt.MaxKey)})
			return err
		},
		"the end of a step": func() error {
			_, _, err := s.BeginStep(t.Context(), ann, ref, ckpt.StepRequest{Key: "k", Name: "n"})
			must(t, err)
			_, _, err = s.FinishStep(t.Context(), ann, ref, ckpt.StepRequest{Key: "k", Status: ckpt.StepFailed, Error: ckpt.Ref(text(ckpt.MaxText))})
			return err
		},
		"an operation": func() error {
			_, _, err := s.BeginOperation(t.Context(), ann, ref, ckpt.OperationRequest{Key: "k", Name: text(ckpt.MaxKey)})
			return err
		},
		"the end of an operation": func() error {
			_, _, err := s.BeginOperation(t.Context(), ann, ref, ckpt.OperationRequest{Key: "end", Name: "n"})
			must(t, err)
			_, _, err = s.EndOperation(t.Context(), ann, ref, ckpt.OperationEnd{Key: "end", Status: ckpt.OperationFailed, Error: ckpt.Ref(text(ckpt.MaxText))})
			return err
		},
		"a run": func() error {
			_, _, err := s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: "r", Goal: ckpt.Ref(text(ckpt.MaxText))})
			return err
		},
		"the end of a run": func() error {
			_, _, err := s.EndRun(t.Context(), ann, ref, ckpt.EndRequest{Status: ckpt.RunSuspended, ContinuationPrompt: ckpt.Ref(text(ckpt.MaxText))})
			return err
		},
		"events": func() error {
			_, _, err := s.Append(t.Context(), ann, ref, []ckpt.NewEvent{{Type: "x", Payload: object(ckpt.MaxValue)}}, "")
			return err
		},
		"a finding": func() error {
			_, _, err := s.PostFinding(t.Context(), ann, "a", ckpt.FindingRequest{Rule: "x", Severity: ckpt.SeverityWarn, Message: "m", Evidence: object(ckpt.MaxMetadata)})
			return err
		},
		"a question": func() error {
			_, _, err := s.AskQuestion(t.Context(), ann, ckpt.QuestionRequest{Agent: "a", Question: text(ckpt.MaxText)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if code := ckpt.CodeOf(do()); code != ckpt.CodeInvalid && code != ckpt.CodeTooLarge {
				t.Errorf("it was taken: %q", code)
			}
		})
	}
}
