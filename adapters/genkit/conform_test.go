package genkit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/adapters/genkit"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/firebase/genkit/go/core/x/session"
)

// conform is the program of clients/conformance: it does what the lines of its
// input say, with the adapter.
func conform() {
	ctx := context.Background()
	sidecar := &client.Client{Deadline: time.Minute}
	defer sidecar.Close()
	store := &genkit.Store[[]string]{Agent: sidecar.Agent("conform")}
	read := func(id string) ([]string, error) {
		data, err := store.Get(ctx, id)
		if data == nil || err != nil {
			return []string{}, err
		}
		return data.State, nil
	}
	add := func(id, value string) error {
		values, err := read(id)
		if err != nil {
			return err
		}
		return store.Save(ctx, id, &session.Data[[]string]{ID: id, State: append(values, value)})
	}
	type command struct{ Do, Session, Value string }
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var c command
		err := json.Unmarshal(lines.Bytes(), &c)
		answer := map[string]any{}
		switch {
		case err != nil:
		case c.Do == "hello":
			answer = map[string]any{"adapter": "adapters/genkit", "agent": "conform", "shared": false, "remove": false}
		case c.Do == "append":
			err = add(c.Session, c.Value)
		case c.Do == "read":
			answer["values"], err = read(c.Session)
		default:
			err = fmt.Errorf("genkit removes no session")
		}
		if err != nil {
			answer["error"] = err.Error()
		}
		if err := out.Encode(answer); err != nil {
			panic(err)
		}
	}
}

// TestConformance runs the conformance test of all adapters.
func TestConformance(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not here: the conformance test is written in Python")
	}
	out, err := exec.Command(python, "../../clients/conformance/conformance.py", "--bin", binary, "--", os.Args[0], "conform").CombinedOutput()
	if err != nil || strings.Count(string(out), "\nok ") != 6 {
		t.Fatalf("%v\n%s", err, out)
	}
}
