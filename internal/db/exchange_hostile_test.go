package db_test

import (
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
)

var (
	wholeNumber = regexp.MustCompile(`:-?\d+([,}])`)
	member      = regexp.MustCompile(`"[a-z_]+":("[^"\\]*"|-?[\d.]+|true|false|null),`)
)

// TestHostileExports changes exports as an attacker could, and seals them
// again. The import accepts or refuses them, and the database is intact in both
// cases.
func TestHostileExports(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	rounds := 20
	if *long {
		rounds = 300
	}
	c, p := newClock(), &processes{dead: map[int]bool{}}
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), c)
	o.Resume, o.Processes, o.Drift = resume.Make, p, drift.New()
	r := rand.New(rand.NewPCG(11, 5))
	h := &past{saver: &saver{t, openWith(t, o), ann, "a"}, rand: r, c: c, p: p, pid: 10}
	for range 120 {
		h.do()
	}
	text := exportOf(t, h.Store, "a")
	body := text[:strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n")+1]
	taken := 0
	for n := range rounds {
		lines := strings.SplitAfter(strings.TrimSuffix(body, "\n"), "\n")
		lines[len(lines)-1] += "\n"
		for range 1 + r.IntN(3) {
			i := 1 + r.IntN(len(lines)-1)
			switch r.IntN(5) {
			case 0:
				lines[i] = wholeNumber.ReplaceAllStringFunc(lines[i], func(s string) string {
					if r.IntN(4) > 0 {
						return s
					}
					return []string{":0", ":1", ":2", ":-1", ":9007199254740993", ":4611686018427387904"}[r.IntN(6)] + s[len(s)-1:]
				})
			case 1:
				if all := member.FindAllStringIndex(lines[i], -1); len(all) > 0 {
					at := all[r.IntN(len(all))]
					lines[i] = lines[i][:at[0]] + lines[i][at[1]:]
				}
			case 2:
				lines[i] = ""
			case 3:
				j := 1 + r.IntN(len(lines)-1)
				lines[i], lines[j] = lines[j], lines[i]
			case 4:
				lines[i] = strings.NewReplacer(`"running"`, `"interrupted"`, `"succeeded"`, `"open"`, `"routine"`, `"pre_operation"`, `"critical"`, `"warn"`, "false", "true").Replace(lines[i])
			}
		}
		hostile := seal(strings.Join(lines, ""))
		o := options(filepath.Join(t.TempDir(), "ckpt.db"), c)
		o.Resume, o.Processes, o.Drift = resume.Make, p, drift.New()
		s := openWith(t, o)
		_, err := s.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(hostile))
		if code := ckpt.CodeOf(err); err != nil && code != ckpt.CodeInvalid && code != ckpt.CodeConflict && code != ckpt.CodeTooLarge {
			t.Errorf("round %d: %v", n, err)
		}
		if err == nil {
			taken++
			page, err := s.Runs(t.Context(), ann, ckpt.RunFilter{Limit: ckpt.MaxLimit})
			must(t, err)
			for _, run := range page.Runs {
				_, _, err := s.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: run.Agent, Run: run.Run, DryRun: true})
				must(t, err)
			}
		}
		must(t, s.Close())
		sound(t, o.Path)
		if t.Failed() {
			t.Fatalf("round %d", n)
		}
	}
	t.Logf("%d of %d were taken", taken, rounds)
}
