//go:build linux || darwin

package endpoint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDialSaysWhatToDo(t *testing.T) {
	dir := folder(t)
	left := filepath.Join(dir, "left")
	stale(t, left)
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, tc := range []struct {
		name, path string
		says       []string
	}{
		{"missing", filepath.Join(dir, "none"), []string{"no daemon answers at", "ckptsidecar serve", "--socket", EnvSocket}},
		{"stale", left, []string{"no daemon answers at", "ended", "ckptsidecar serve"}},
		{"no socket", file, []string{file}},
		{"too long", filepath.Join(dir, strings.Repeat("x", 200)), []string{"too long", "--socket"}},
	} {
		_, err := Dial(t.Context(), tc.path)
		var de *DialError
		if !errors.As(err, &de) || de.Path != tc.path {
			t.Errorf("%s: %v is no DialError of %s", tc.name, err, tc.path)
			continue
		}
		for _, part := range append(tc.says, tc.path) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", tc.name, err, part)
			}
		}
	}
}

func TestDialWithoutPermission(t *testing.T) {
	needRoot(t)
	path := filepath.Join(folder(t), "s")
	listen(t, Options{Path: path})
	got, _ := askAs(t, path, asUser(1000))
	if !strings.Contains(got, "not allowed to connect to "+path) || !strings.Contains(got, "group") {
		t.Errorf("without permission: %q", got)
	}
}

func TestDialKeepsTheContextsError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := filepath.Join(folder(t), "s")
	listen(t, Options{Path: path})
	if _, err := Dial(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial = %v, want context.Canceled", err)
	}
}

func TestCandidates(t *testing.T) {
	system := filepath.Join(systemRun, "ckptsidecar/ckptsidecar.sock")
	for _, tc := range []struct {
		name, env, runtime, state, home string
		want                            []string
	}{
		{"all", "/x/s", "/run/user/7", "/st", "/home/u", []string{"/x/s", "/run/user/7/ckptsidecar.sock", system}},
		{"no environment", "", "/run/user/7", "", "/home/u", []string{"/run/user/7/ckptsidecar.sock", system}},
		{"beside the database", "", "", "/st", "/home/u", []string{"/st/ckptsidecar/ckptsidecar.sock", system}},
		{"beside the default database", "", "", "", "/home/u", []string{"/home/u/.local/state/ckptsidecar/ckptsidecar.sock", system}},
		{"relative values are ignored", "", "run", "state", "/home/u", []string{"/home/u/.local/state/ckptsidecar/ckptsidecar.sock", system}},
		{"no home", "", "", "", "", []string{system}},
		{"the same twice", system, "", "", "", []string{system}},
	} {
		t.Setenv(EnvSocket, tc.env)
		t.Setenv("XDG_RUNTIME_DIR", tc.runtime)
		t.Setenv("XDG_STATE_HOME", tc.state)
		t.Setenv("HOME", tc.home)
		if got := Candidates(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// paths sets up the socket paths of a user, without a daemon.
func paths(t *testing.T) (env, users string) {
	t.Helper()
	env, users = filepath.Join(folder(t), "env"), filepath.Join(folder(t), socketName)
	t.Setenv(EnvSocket, env)
	t.Setenv("XDG_RUNTIME_DIR", filepath.Dir(users))
	return env, users
}

// TestDialWithALongHome: who has named a short path because the home folder is long is told that no daemon answers there.
func TestDialWithALongHome(t *testing.T) {
	env, _ := paths(t)
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("XDG_STATE_HOME", "/"+strings.Repeat("x", 200))
	if _, err := Dial(t.Context(), ""); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), env) {
		t.Errorf("with no daemon: %v", err)
	}
	t.Setenv(EnvSocket, "/"+strings.Repeat("y", 200))
	if _, err := Dial(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "yyy is too long") {
		t.Errorf("with a long path of the user's own: %v", err)
	}
}

func TestDialTriesTheCandidatesInOrder(t *testing.T) {
	env, users := paths(t)
	_, err := Dial(t.Context(), "")
	var de *DialError
	if !errors.As(err, &de) || !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("with no daemon: %v", err)
	}
	for _, p := range []string{env, users, Default(true)} {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not name %s", err, p)
		}
	}
	listen(t, Options{Path: users})
	stale(t, env)
	if got, want := ask(""), self(os.Getuid() == 0); got != want {
		t.Errorf("the user's daemon says %q, want %q", got, want)
	}
}

func TestDialShowsTheTellingFailure(t *testing.T) {
	env, users := paths(t)
	stale(t, users)
	_, err := Dial(t.Context(), "")
	if err == nil || !strings.Contains(err.Error(), users) || strings.Contains(err.Error(), env) {
		t.Errorf("%v, want the stale one of %s, not the missing ones", err, users)
	}
}
