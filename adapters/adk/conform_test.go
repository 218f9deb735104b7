package adk_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/adapters/adk"
	"github.com/ckptsidecar/ckptsidecar/client"
	"google.golang.org/adk/session"
)

// conform is the program of clients/conformance: it does what the lines of its
// input say, with the adapter.
func conform() {
	ctx := context.Background()
	sidecar := &client.Client{Deadline: time.Minute}
	defer sidecar.Close()
	service := &adk.Service{Client: sidecar}
	get := func(id string) (session.Session, error) {
		listed, err := service.List(ctx, &session.ListRequest{AppName: "conform", UserID: "u"})
		if err != nil {
			return nil, err
		}
		for _, s := range listed.Sessions {
			if s.ID() == id {
				got, err := service.Get(ctx, &session.GetRequest{AppName: "conform", UserID: "u", SessionID: id})
				if err != nil {
					return nil, err
				}
				return got.Session, nil
			}
		}
		return nil, nil
	}
	read := func(id string) ([]string, error) {
		values := []string{}
		s, err := get(id)
		if s == nil || err != nil {
			return values, err
		}
		for e := range s.Events().All() {
			values = append(values, e.Author)
		}
		return values, nil
	}
	add := func(id, value string) error {
		s, err := get(id)
		if err != nil {
			return err
		}
		if s == nil {
			made, err := service.Create(ctx, &session.CreateRequest{AppName: "conform", UserID: "u", SessionID: id})
			if err == nil {
				s = made.Session
			} else if s, err = get(id); err != nil { // another process has made it
				return err
			}
		}
		e := session.NewEvent("i")
		e.Author = value
		return service.AppendEvent(ctx, s, e)
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
			answer = map[string]any{"adapter": "adapters/adk", "agent": "adk", "shared": true, "remove": true}
		case c.Do == "append":
			err = add(c.Session, c.Value)
		case c.Do == "read":
			answer["values"], err = read(c.Session)
		case c.Do == "remove":
			err = service.Delete(ctx, &session.DeleteRequest{AppName: "conform", UserID: "u", SessionID: c.Session})
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
