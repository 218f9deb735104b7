package retention

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

var update = flag.Bool("update", false, "write the golden files anew")

// noon is the present time of the golden files.
var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// mark begins the part of a golden file that -update writes.
const mark = "--- answer\n"

// scene is the content of the upper part of a golden file:
//
//	policy routine_keep=3 recovery_keep=7d ended_keep=30d
//	clock untrusted
//	over 300
//	run main running
//	run old completed ended=31d
//	  4 routine 2h pinned suspect needed="a fork" size=100
//
// A run's checkpoints are listed below it: sequence number, kind, age, and
// further properties. Everything else has its default.
type scene struct {
	policy ckpt.Policy
	now    time.Time
	over   int64
	names  []string
	runs   []History
}

func parseScene(t *testing.T, text string) *scene {
	t.Helper()
	s := &scene{policy: ckpt.DefaultPolicy(), now: noon}
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := splitWords(line)
		if len(words) == 0 {
			continue
		}
		if err := s.take(words); err != nil {
			t.Fatalf("line %d: %v", n+1, err)
		}
	}
	return s
}

// splitWords splits at blanks that are not inside quotes.
func splitWords(line string) []string {
	quoted := false
	return strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
}

func (s *scene) take(words []string) error {
	switch words[0] {
	case "policy":
		return s.takePolicy(words[1:])
	case "clock":
		s.now = time.Time{}
		return nil
	case "over":
		var err error
		s.over, err = strconv.ParseInt(words[1], 10, 64)
		return err
	case "run":
		return s.takeRun(words[1:])
	}
	return s.takeCheckpoint(words)
}

func (s *scene) takePolicy(words []string) (err error) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "routine_keep":
			s.policy.RoutineKeep, err = strconv.Atoi(value)
		case "recovery_keep":
			s.policy.RecoveryKeep, err = ckpt.ParseDuration(value)
		case "pre_operation_keep":
			s.policy.PreOperationKeep, err = ckpt.ParseDuration(value)
		case "ended_keep":
			s.policy.EndedKeep, err = ckpt.ParseDuration(value)
		default:
			err = fmt.Errorf("what is %s?", key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *scene) takeRun(words []string) error {
	h := History{Status: ckpt.RunStatus(words[1])}
	if len(words) > 2 {
		age, err := ckpt.ParseDuration(strings.TrimPrefix(words[2], "ended="))
		if err != nil {
			return err
		}
		h.EndedAt = noon.Add(-time.Duration(age))
	}
	s.names, s.runs = append(s.names, words[0]), append(s.runs, h)
	return nil
}

func (s *scene) takeCheckpoint(words []string) error {
	seq, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return err
	}
	age, err := ckpt.ParseDuration(words[2])
	if err != nil {
		return err
	}
	last := len(s.runs) - 1
	c := Held{ID: s.names[last] + "/" + words[0], Seq: seq, Kind: ckpt.Kind(words[1]), CreatedAt: noon.Add(-time.Duration(age)), StoredSize: 100}
	c.Operation = c.Kind == ckpt.KindPreOperation
	for _, w := range words[3:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "pinned":
			c.Pinned = true
		case "suspect":
			c.Suspect = true
		case "damaged":
			c.Damaged = true
		case "alone": // a pre_operation checkpoint without an operation
			c.Operation = false
		case "released":
			c.Released = true
		case "undated":
			c.CreatedAt = time.Time{}
		case "needed":
			c.NeededBy = strings.Trim(value, `"`)
		case "size":
			c.StoredSize, err = strconv.ParseInt(value, 10, 64)
		default:
			err = fmt.Errorf("what is %s?", w)
		}
		if err != nil {
			return err
		}
	}
	s.runs[last].Checkpoints = append(s.runs[last].Checkpoints, c)
	return nil
}

// golden computes the answer for each file of a folder and compares it with the
// text below the mark.
func golden(t *testing.T, folder string, answer func(*scene) string) {
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files in testdata/%s: %v", folder, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			told, want, _ := strings.Cut(strings.ReplaceAll(string(text), "\r\n", "\n"), mark)
			got := answer(parseScene(t, told))
			if *update {
				if err := os.WriteFile(file, []byte(told+mark+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-file +now)\n%s", diff)
			}
		})
	}
}

func TestPlanGolden(t *testing.T) {
	golden(t, "plan", func(s *scene) string {
		var b strings.Builder
		for i, h := range s.runs {
			for k, v := range Plan(h, s.policy, s.now) {
				what := "keep"
				if v.Remove {
					what = "REMOVE"
				}
				c := h.Checkpoints[k]
				fmt.Fprintf(&b, "%-10s %-13s %-7s %s\n", v.ID, c.Kind, what, v.Reason)
			}
			if Over(h, s.policy, s.now) {
				fmt.Fprintf(&b, "%-10s %-13s %-7s\n", s.names[i], "run", "OVER")
			}
		}
		return b.String()
	})
}

func TestBudgetGolden(t *testing.T) {
	golden(t, "budget", func(s *scene) string {
		var b strings.Builder
		remove, short := Budget(s.runs, s.over)
		for _, v := range remove {
			fmt.Fprintf(&b, "%-10s %s\n", v.ID, v.Reason)
		}
		fmt.Fprintf(&b, "short by %d\n", short)
		return b.String()
	})
}
