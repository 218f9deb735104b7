package db_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// TestRunsStayInTheirRows refuses an import whose numbers would put a checkpoint into the rows of
// another owner's run, at once or with the next save.
func TestRunsStayInTheirRows(t *testing.T) {
	t.Parallel()
	numbered := func(seq, lastSeq string) string {
		return linesOf(`{"type":"agent","agent":"a","owner":"uid:1","created_at":"2026-01-01T00:00:00.000Z","policy_at":"2026-01-01T00:00:00.000Z","policy":{}}`,
			`{"type":"checkpoint","run":"main","row":{"id":"019a0000-0000-7000-8000-000000000001","seq":`+seq+`,"kind":"routine","created_at":"2026-01-01T00:00:00.000Z","size":2,"sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","content_type":"application/json"},"state":{}}`,
			`{"type":"run","run":"main","row":{"status":"running","epoch":1,"attempt":1,"started_at":"2026-01-01T00:00:00.000Z","updated_at":"2026-01-01T00:00:00.000Z","life":1,"last_seq":`+lastSeq+`}}`)
	}
	for _, c := range []struct {
		name, text string
		taken      bool
	}{
		{"a checkpoint beyond the last", numbered("4294967297", "4294967297"), false},
		{"a number beyond the last", numbered("1", "4294967296"), false},
		{"the last number", numbered("1", "4294967295"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ckpt.db")
			s := openWith(t, options(path, newClock()))
			save(t, s, bob, "first", ckpt.KindRoutine, `1`)
			// The run is number 2, whose rows begin with the bits 10.
			_, err := s.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(c.text))
			if code := ckpt.CodeOf(err); c.taken != (err == nil) || err != nil && code != ckpt.CodeInvalid {
				t.Errorf("the import: %v", err)
			}
			if c.taken {
				_, err := s.Save(t.Context(), ann, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, State: []byte(`2`)})
				if ckpt.CodeOf(err) != ckpt.CodeConflict {
					t.Errorf("a save after the last number: %v", err)
				}
			}
			for _, agent := range []string{"second", "third"} {
				if _, err := s.Save(t.Context(), bob, &ckpt.SaveRequest{Agent: agent, Kind: ckpt.KindRoutine, State: []byte(`1`)}); err != nil {
					t.Errorf("another owner cannot save: %v", err)
				}
			}
			must(t, s.Close())
			sound(t, path)
		})
	}
}

// TestImportsNameAnOwner refuses an export whose owner is a long text. The audit log would repeat it
// for each checkpoint.
func TestImportsNameAnOwner(t *testing.T) {
	t.Parallel()
	from, _ := open(t)
	save(t, from, ann, "a", ckpt.KindRoutine, `1`)
	text := exportOf(t, from, "a")
	s, _ := open(t)
	for _, owner := range []string{strings.Repeat("x", 1<<20), "uid:1\u001b", "*"} {
		forged := forged(t, text, `UPDATE agents SET owner = '`+owner+`'`)
		if _, err := s.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(forged)); ckpt.CodeOf(err) != ckpt.CodeInvalid {
			t.Errorf("owner %.20q: %v", owner, err)
		}
	}
}

// TestEverythingThatIsTakenIsExported exports values that only just fit into a request. A value that
// an export refuses would also stop a host of a fleet from shipping.
func TestEverythingThatIsTakenIsExported(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	for name, do := range map[string]func(a *asker) error{
		"an operation of a fork": func(a *asker) error {
			from := save(t, a.Store, ann, "a", ckpt.KindRoutine, `1`)
			ref := ckpt.RunRef{Agent: "a", Run: "fork"}
			if _, _, err := a.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: ref.Run, ForkFrom: ckpt.Ref(from.ID)}); err != nil {
				return err
			}
			_, _, err := a.BeginOperation(t.Context(), ann, ref, ckpt.OperationRequest{Key: "o", Name: "o"})
			return err
		},
		"a long program": func(a *asker) error {
			_, err := a.Save(t.Context(), ann, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, State: []byte(`1`),
				Program: &ckpt.Program{Source: strings.Repeat("<", 9<<20)}})
			return err
		},
		"the least measures": func(a *asker) error {
			_, _, err := a.BeginStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: "s", Name: "s", Status: ckpt.StepSucceeded,
				DurationMS: &least, InputTokens: &least, OutputTokens: &least})
			return err
		},
		"the longest time": func(a *asker) error {
			if _, _, err := a.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", AccumulatedMS: &most}); err != nil {
				return err
			}
			a.clock.add(time.Minute)
			_, _, err := a.EndRun(t.Context(), ann, mainRun, ckpt.EndRequest{Status: ckpt.RunSuspended})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newAsker(t), newAsker(t)
			must(t, do(a))
			text := exportOf(t, a.Store, "a")
			if said := inside(t, text, `SELECT value FROM meta WHERE key = 'export'`); strings.Contains(said, "damaged") {
				t.Errorf("%.300s", said)
			}
			_, err := b.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
			must(t, err)
			if rowsIn(t, exportOf(t, b.Store, "a")) != rowsIn(t, text) {
				t.Error("the export of what was imported is another")
			}
		})
	}
}

// TestImportedRunsCanBeExportedAgain: an import refuses numbers that would overflow as its run goes
// on, and makes the words of a damaged line printable. The run could be neither resumed nor
// exported.
func TestImportedRunsCanBeExportedAgain(t *testing.T) {
	t.Parallel()
	from := newAsker(t)
	save(t, from.Store, ann, "a", ckpt.KindRoutine, `1`)
	step := ckpt.StepRequest{Key: "s", Name: "s", Status: ckpt.StepFailed}
	_, _, err := from.BeginStep(t.Context(), ann, mainRun, step)
	must(t, err)
	_, _, err = from.BeginOperation(t.Context(), ann, mainRun, ckpt.OperationRequest{Key: "o", Name: "o"})
	must(t, err)
	_, _, err = from.EndOperation(t.Context(), ann, mainRun, ckpt.OperationEnd{Key: "o", Status: ckpt.OperationFailed})
	must(t, err)
	text := exportOf(t, from.Store, "a")
	changed := map[string]string{"damaged": `UPDATE meta SET value = '{"version":1,"damaged":{"1":"` + strings.Repeat("k", 500) + `a\n\u001b[1m"}}' WHERE key = 'export'`}
	for table, columns := range map[string][]string{"runs": {"epoch", "attempt", "stretch", "last_event", "steps_ended"}, "steps": {"attempt", "failures", "stretch"},
		"operations": {"attempt"}} {
		for _, column := range columns {
			changed[table+" "+column] = `UPDATE ` + table + ` SET ` + column + ` = 9223372036854775807`
		}
	}
	for name, statements := range changed {
		t.Run(name, func(t *testing.T) {
			s := newAsker(t)
			_, err := s.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(forged(t, text, statements)))
			if ckpt.CodeOf(err) == ckpt.CodeInvalid {
				return
			}
			must(t, err)
			if name != "damaged" {
				_, _, err := s.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: "a", Force: true})
				must(t, err)
			}
			_, _, err = s.BeginStep(t.Context(), ann, mainRun, step)
			must(t, err)
			_, _, err = s.Append(t.Context(), ann, mainRun, []ckpt.NewEvent{{Type: "x"}}, "")
			must(t, err)
			if said := inside(t, exportOf(t, s.Store, "a"), `SELECT value FROM meta WHERE key = 'export'`); strings.Contains(said, "damaged") {
				t.Error(said)
			}
		})
	}
}
