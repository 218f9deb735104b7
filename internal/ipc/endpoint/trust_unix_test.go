//go:build linux || darwin

package endpoint

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestClientRefusesAStranger: one user listens where another user's client
// looks for a daemon. The client must not send anything.
func TestClientRefusesAStranger(t *testing.T) {
	needRoot(t)
	const squatter, victim = 1001, 1002
	dir := folder(t)
	must(t, os.Chown(dir, squatter, squatter))
	path := filepath.Join(dir, "s")
	cmd := child(t, "squat", path, nil)
	cmd.SysProcAttr = childOf(squatter)
	first := waitReady(t, cmd)
	got, _ := askAs(t, path, asUser(victim))
	for _, part := range []string{path, "uid 1001", "uid 1002", "--socket"} {
		if !strings.Contains(got, part) {
			t.Errorf("the victim is told %q, which does not say %q", got, part)
		}
	}
	_, err := Dial(t.Context(), path)
	var stranger *StrangerError
	if !errors.As(err, &stranger) || stranger.Peer != squatter || stranger.Self != 0 {
		t.Errorf("root gets %v, want a StrangerError that names %d and 0", err, squatter)
	}
	if got, _ := askAs(t, path, asUser(squatter)); got != "" && got != "closed" {
		t.Errorf("its own user gets %q", got)
	}
	// The squatter prints how many bytes each of the three connections sent.
	for i := range 3 {
		if line, err := first.ReadString('\n'); err != nil || line != "0 bytes\n" {
			t.Errorf("connection %d: %q, %v", i, line, err)
		}
	}
}

// TestStrangerEndsTheSearch: if a client finds another user's daemon, Dial
// fails and does not continue with other paths.
func TestStrangerEndsTheSearch(t *testing.T) {
	needRoot(t)
	users := defaults(t)
	must(t, os.Chown(filepath.Dir(users), 1000, 1000))
	startServer(t, users, 1000)
	_, err := Dial(t.Context(), "")
	var failed *DialError
	if !errors.As(err, &failed) || !failed.Stranger() || failed.Path != users {
		t.Errorf("Dial = %v, want a stranger at %s", err, users)
	}
}

// TestClientTrustsTheService tries the places that root can give away.
func TestClientTrustsTheService(t *testing.T) {
	needRoot(t)
	const svc, person, other = 977, 1003, 1004
	top, err := os.MkdirTemp("/run", "ep") // only root can write above it
	if err != nil {
		t.Skipf("needs a folder below which only root writes: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	must(t, os.Chmod(top, 0o755))
	for _, tc := range []struct {
		name               string
		above              os.FileMode
		folder, file, peer int
		mode               os.FileMode
		trusted            bool
		aboveOwner         int
	}{
		{name: "a folder of the service's account", folder: svc, peer: svc, trusted: true},
		{name: "a person's folder", folder: person, peer: person},
		{name: "root's folder, and a socket that root gave away", folder: 0, file: person, peer: person, trusted: true},
		{name: "root's folder, and another user's socket", folder: 0, file: other, peer: person},
		{name: "root's folder, in which others write", folder: 0, file: svc, peer: svc, mode: 0o777},
		{name: "root's folder, in which a group writes", folder: 0, file: svc, peer: svc, mode: 0o775},
		{name: "a folder in which a group writes", folder: svc, peer: svc, mode: 0o775},
		{name: "a folder that others could replace", folder: svc, peer: svc, above: 0o777},
		{name: "a folder in a sticky one", folder: svc, peer: svc, above: 0o777 | os.ModeSticky},
		{name: "root's folder in a sticky one", folder: 0, file: svc, peer: svc, above: 0o777 | os.ModeSticky, trusted: true},
		{name: "a folder below a person's", folder: svc, peer: svc, aboveOwner: person},
		{name: "nobody", folder: overflowID, peer: overflowID},
	} {
		t.Run(tc.name, func(t *testing.T) {
			above, err := os.MkdirTemp(top, "")
			must(t, err)
			dir := filepath.Join(above, "d")
			must(t, os.Mkdir(dir, 0o755))
			path := filepath.Join(dir, "s")
			l, err := net.Listen("unix", path)
			must(t, err)
			defer l.Close()
			if tc.file == 0 {
				tc.file = tc.folder
			}
			must(t, os.Chown(path, tc.file, tc.file))
			must(t, os.Chown(dir, tc.folder, tc.folder))
			if tc.mode != 0 {
				must(t, os.Chmod(dir, tc.mode))
			}
			must(t, os.Chmod(above, 0o755))
			if tc.above != 0 {
				must(t, os.Chmod(above, tc.above))
			}
			must(t, os.Chown(above, tc.aboveOwner, tc.aboveOwner))
			if got := isServiceUser(uint32(tc.peer), path); got != tc.trusted {
				t.Errorf("isServiceUser = %v, want %v", got, tc.trusted)
			}
		})
	}
}

// TestClientOfAServiceOfItsOwnAccount runs the real arrangement: the daemon
// runs as one user, and the client as another.
func TestClientOfAServiceOfItsOwnAccount(t *testing.T) {
	needRoot(t)
	const svc = 977
	dir, err := os.MkdirTemp("/run", "ep")
	if err != nil {
		t.Skipf("needs a folder below which only root writes: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chown(dir, svc, svc))
	path := filepath.Join(dir, "s")
	cmd := child(t, "serve", path, nil)
	cmd.SysProcAttr = childOf(svc)
	waitReady(t, cmd)
	got, pid := askAs(t, path, asUser(1000))
	if want := fmt.Sprintf("uid:1000 pid:%d admin:false", pid); got != want {
		t.Errorf("a user of the service gets %q, want %q", got, want)
	}
}
