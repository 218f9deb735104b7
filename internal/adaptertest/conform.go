package adaptertest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Sessions is an adapter as the conformance test of all adapters sees it: sessions
// with values. It is described in clients/conformance.
type Sessions struct {
	Adapter string // the folder, such as adapters/eino
	Agent   string // whose runs the sessions are
	Shared  bool   // several processes may add to one session at once
	Add     func(session, value string) error
	Read    func(session string) ([]string, error)
	Remove  func(session string) error // nil where the adapter removes no session
}

// Conform is the program that the conformance test starts: it does what the lines of
// its input say.
func Conform(s Sessions) {
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		answer, err := s.answer(lines.Bytes())
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			panic(err)
		}
	}
}

func (s *Sessions) answer(line []byte) (map[string]any, error) {
	var c struct{ Do, Session, Value string }
	if err := json.Unmarshal(line, &c); err != nil {
		return nil, err
	}
	switch {
	case c.Do == "hello":
		return map[string]any{"adapter": s.Adapter, "agent": s.Agent, "shared": s.Shared, "remove": s.Remove != nil}, nil
	case c.Do == "append":
		return map[string]any{}, s.Add(c.Session, c.Value)
	case c.Do == "read":
		values, err := s.Read(c.Session)
		return map[string]any{"values": append([]string{}, values...)}, err
	case c.Do == "remove" && s.Remove != nil:
		return map[string]any{}, s.Remove(c.Session)
	}
	return nil, fmt.Errorf("%s does not do %q", s.Adapter, c.Do)
}

// Conformance runs the conformance test of all adapters with the program conform of
// this test binary.
func Conformance(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not here: the conformance test is written in Python")
	}
	out, err := exec.Command(python, "../../clients/conformance/conformance.py", "--bin", binary, "--", os.Args[0], "conform").CombinedOutput()
	if err != nil || strings.Count(string(out), "\nok ") != 6 {
		t.Fatalf("%v\n%s", err, out)
	}
}
