package resume

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// withProgram returns the facts of a run whose newest checkpoint has a program,
// and whose older checkpoint has none.
func withProgram(source string, executed int64) *Facts {
	f := &Facts{
		Now: noon, Exists: true, Autoresume: true, Interrupted: noon.Add(-time.Minute),
		Run:         ckpt.Run{Agent: "coder", Run: "main", Status: ckpt.RunInterrupted},
		Checkpoints: []FactCheckpoint{{ID: "new", Seq: 2, Kind: ckpt.KindRoutine}, {ID: "old", Seq: 1, Kind: ckpt.KindRoutine}},
	}
	f.Load = func(id string) (*ckpt.Checkpoint, error) {
		c := &ckpt.Checkpoint{ID: id, Run: "main", ContentType: "text/plain"}
		if id == "new" {
			c.Program = &ckpt.Program{Source: source, Executed: executed}
		}
		return c, nil
	}
	return f
}

// TestRepeatedStatements: the same statement occurs many times. Whichever of
// them ran last, the rest is what follows it, and running the rest does each
// statement exactly once.
func TestRepeatedStatements(t *testing.T) {
	statements := []string{"await pay(1)\n", "await pay(1)\n", "note()\n", "await pay(1)\n", "note()\n", "await pay(1)\n"}
	source := strings.Join(statements, "")
	done := ""
	for i := range len(statements) + 1 {
		p, err := Make(withProgram(source, int64(len(done))))
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Join(statements[i:], ""); p.Program.Remaining != want || p.Program.Executed != int64(len(done)) {
			t.Errorf("after %d statements there remains %q, not %q", i, p.Program.Remaining, want)
		}
		if done+p.Program.Remaining != source {
			t.Errorf("after %d statements something is lost or done twice", i)
		}
		if i < len(statements) {
			done += statements[i]
		}
	}
}

func FuzzProgram(f *testing.F) {
	f.Add("a()\na()\n", int64(4))
	f.Add("é", int64(1))
	f.Add("", int64(0))
	f.Add("x", int64(2))
	f.Add("x", int64(-1))
	f.Add("\xff\x80", int64(1))
	f.Fuzz(func(t *testing.T, source string, executed int64) {
		p, err := Make(withProgram(source, executed))
		if err != nil {
			t.Fatal(err)
		}
		if p.Program == nil {
			inside := executed >= 0 && executed <= int64(len(source))
			if p.Checkpoint.ID != "old" || p.Verdict != ckpt.VerdictRepair || inside && utf8.ValidString(source[:executed]) && utf8.ValidString(source[executed:]) {
				t.Errorf("a program of %d bytes at %d was passed over", len(source), executed)
			}
			return
		}
		if p.Checkpoint.ID != "new" || source[:executed]+p.Program.Remaining != source {
			t.Errorf("%q at %d leaves %q", source, executed, p.Program.Remaining)
		}
		if utf8.ValidString(source) && !utf8.ValidString(p.Program.Remaining) {
			t.Errorf("%q at %d is cut inside a character", source, executed)
		}
	})
}
