package hook_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// sessionInFolder is a session whose hook is the real program, in a folder with files.
type sessionInFolder struct {
	*testing.T
	folder, socket, home string
	product              hook.Product
}

// gets plays one event, and returns what the model is told.
func (s *sessionInFolder) gets(event string, members map[string]any) string {
	s.Helper()
	all := map[string]any{"hook_event_name": event, "session_id": "s", "cwd": s.folder, "transcript_path": ""}
	for name, value := range members {
		all[name] = value
	}
	text, err := json.Marshal(all)
	expect.OK(s, err)
	out := s.command(string(text), "hook", "--for", string(s.product), "--files", "--agent", "a", "--timeout", "20s", "--debug")
	if out == "" {
		return ""
	}
	return contextOf(s, event, []byte(out))
}

func (s *sessionInFolder) command(stdin string, args ...string) string {
	s.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Stdin = s.folder, strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "HOME="+s.home, "XDG_CACHE_HOME="+s.home, "CKPTSIDECAR_SOCKET="+s.socket)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("%v: %v\n%s%s", args, err, out, errs.String())
	}
	return string(out)
}

// untilKept waits until the newest checkpoint of the session has its files.
func (s *sessionInFolder) untilKept() {
	s.Helper()
	c := &client.Client{Socket: s.socket}
	defer c.Close()
	expect.Soon(s, "the files are kept", func() bool {
		last, err := c.Latest(s.Context(), ckpt.CheckpointFilter{Agent: "a", Run: "s"}, false)
		return err == nil && len(last.Trees) > 0
	})
}

func (s *sessionInFolder) write(name, text string) {
	s.Helper()
	expect.OK(s, os.WriteFile(filepath.Join(s.folder, name), []byte(text), 0o600))
}

// TestTheModelIsToldOfARestore: the user sets files back, also after the session has ended, and the model hears it once, at the
// next prompt.
func TestTheModelIsToldOfARestore(t *testing.T) {
	for _, p := range hook.Products {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ended %t", p, ended), func(t *testing.T) {
				t.Parallel()
				d := newDaemonIn(t)
				folder, err := filepath.EvalSymlinks(t.TempDir())
				expect.OK(t, err)
				s := &sessionInFolder{t, folder, d.socket, d.dir, p}
				prompt, stop := "UserPromptSubmit", "Stop"
				if p == hook.Gemini {
					prompt, stop = "BeforeAgent", "AfterAgent"
				}
				asks := func(text string) string { return s.gets(prompt, map[string]any{"prompt": text}) }
				s.gets("SessionStart", map[string]any{"source": "startup"})
				names := []string{"a b", "c", "d", "e", "f", "g", "h"}
				for n, text := range []string{"Write <one>.", "Write two."} {
					for _, name := range names {
						s.write(name, fmt.Sprint(n))
					}
					if told := asks(text); told != "" {
						t.Errorf("at %q the model was told %q", text, told)
					}
					s.untilKept()
				}
				for _, name := range names {
					s.write(name, "2")
				}
				s.gets(stop, nil)
				if ended {
					s.gets("SessionEnd", nil)
				}
				s.untilKept()
				s.command("", "rewind", "2", "--agent", "a", "--run", "s", "--yes", "--overwrite")
				if ended {
					if told := s.gets("SessionStart", map[string]any{"source": "resume"}); told != "" {
						t.Errorf("it begins with %q", told)
					}
				}
				want := []string{`the user set files back to how they were before the prompt "Write \u003cone\u003e." (number 2 from the newest, of `, "undone on disk",
					`"a b, c, d, e, f and 2 more"`}
				if told := asks("Go on."); !holds(told, want) || strings.Count(told, "[ckptsidecar]") != 1 {
					t.Errorf("the model was told %q, not %q", told, want)
				}
				if told := asks("And on."); told != "" {
					t.Errorf("the model was told again: %q", told)
				}
				s.command("", "rewind", "--undo")
				want = []string{"before the restore of ", "which is taken back", `"a b, c, d, e, f and 2 more"`}
				if told := asks("Go on."); !holds(told, want) || strings.Count(told, "[ckptsidecar]") != 1 {
					t.Errorf("after the undo the model was told %q, not %q", told, want)
				}
				s.command("", "rewind", "--undo")
				s.command("", "rewind", "--undo")
				if told := asks("Go on."); strings.Count(told, "[ckptsidecar]") != 2 {
					t.Errorf("after two undos the model was told %q", told)
				}
			})
		}
	}
}

func holds(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}
