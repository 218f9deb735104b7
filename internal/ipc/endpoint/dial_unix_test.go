//go:build linux || darwin

package endpoint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
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
	if !strings.Contains(got, "not allowed to connect to "+path) || !strings.Contains(got, "only its owner may") {
		t.Errorf("without permission: %q", got)
	}
	group, err := user.LookupGroup("daemon")
	if err != nil {
		t.Skipf("there is no group daemon: %v", err)
	}
	gid, err := strconv.Atoi(group.Gid)
	must(t, err)
	must(t, os.Chown(path, 0, gid))
	must(t, os.Chmod(path, 0o660))
	got, _ = askAs(t, path, asUser(2)) // the user bin, without the group
	if !strings.Contains(got, "join the group daemon, which owns it (sudo usermod -aG daemon bin, then log in again)") {
		t.Errorf("with a group: %q", got)
	}
	got, _ = askAs(t, path, asUser(54321)) // as a container's user, without a name
	if !strings.Contains(got, "join the group daemon ("+group.Gid+"), which owns it") {
		t.Errorf("a user without a name: %q", got)
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

func TestUsual(t *testing.T) {
	system := filepath.Join(systemRun, "ckptsidecar/ckptsidecar.sock")
	for _, tc := range []struct {
		name, runtime, state, home string
		want                       []string
	}{
		{"with a runtime folder", "/run/user/7", "/st", "/home/u", []string{"/run/user/7/ckptsidecar.sock", system}},
		{"beside the database", "", "/st", "/home/u", []string{"/st/ckptsidecar/ckptsidecar.sock", system}},
		{"beside the default database", "", "", "/home/u", []string{"/home/u/.local/state/ckptsidecar/ckptsidecar.sock", system}},
		{"relative values are ignored", "run", "state", "/home/u", []string{"/home/u/.local/state/ckptsidecar/ckptsidecar.sock", system}},
		{"no home", "", "", "", []string{system}},
	} {
		if !filepath.IsAbs(tc.runtime) && runtimeFolder(runtimeFolders, os.Getuid()) != "" {
			continue // this machine has one
		}
		t.Setenv("XDG_RUNTIME_DIR", tc.runtime)
		t.Setenv("XDG_STATE_HOME", tc.state)
		t.Setenv("HOME", tc.home)
		if got := Usual(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestRuntimeFolder: without XDG_RUNTIME_DIR (cron, su) the user's daemon is where it is with it.
func TestRuntimeFolder(t *testing.T) {
	above, uid := t.TempDir(), os.Getuid()
	if got := runtimeFolder(above, uid); got != "" {
		t.Errorf("without a folder: %q", got)
	}
	own := filepath.Join(above, strconv.Itoa(uid))
	must(t, os.Mkdir(own, 0o700))
	if got := runtimeFolder(above, uid); got != own {
		t.Errorf("with a folder: %q, want %q", got, own)
	}
	must(t, os.Mkdir(filepath.Join(above, "4242"), 0o700))
	if got := runtimeFolder(above, 4242); got != "" {
		t.Errorf("a folder of another user counts: %q", got)
	}
	if got := runtimeFolder("", uid); got != "" {
		t.Errorf("on a system without such folders: %q", got)
	}
}

// defaults makes folders for the user's own daemon and names no endpoint.
func defaults(t *testing.T) (users string) {
	t.Helper()
	users = filepath.Join(folder(t), socketName)
	t.Setenv(EnvSocket, "")
	t.Setenv("XDG_RUNTIME_DIR", filepath.Dir(users))
	return users
}

// TestNamedEndpointNeverFallsBack: who named a staging daemon does not write into the user's own.
func TestNamedEndpointNeverFallsBack(t *testing.T) {
	users := defaults(t)
	listen(t, Options{Path: users})
	named := filepath.Join(folder(t), "named")
	t.Setenv(EnvSocket, named)
	_, err := Dial(t.Context(), "")
	var de *DialError
	if !errors.As(err, &de) || de.Path != named || !strings.Contains(err.Error(), named+" (named by "+EnvSocket+")") {
		t.Errorf("by the environment: %v", err)
	}
	other := filepath.Join(folder(t), "other")
	if _, err := Dial(t.Context(), other); err == nil || !strings.Contains(err.Error(), other+" (named by --socket or Client.Socket)") {
		t.Errorf("by the caller: %v", err)
	}
	t.Setenv(EnvSocket, "/"+strings.Repeat("y", 200))
	if _, err := Dial(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "is too long") {
		t.Errorf("with a path that is too long: %v", err)
	}
}

// TestDialWithALongHome: a default path that is too long is no endpoint.
func TestDialWithALongHome(t *testing.T) {
	t.Setenv(EnvSocket, "")
	t.Setenv("XDG_RUNTIME_DIR", "/"+strings.Repeat("x", 200))
	if _, err := Dial(t.Context(), ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with no daemon: %v", err)
	}
}

func TestDialTriesTheCandidatesInOrder(t *testing.T) {
	users := defaults(t)
	_, err := Dial(t.Context(), "")
	var de *DialError
	if !errors.As(err, &de) || !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("with no daemon: %v", err)
	}
	for _, p := range []string{users, Default(true)} {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not name %s", err, p)
		}
	}
	listen(t, Options{Path: users})
	if got, want := ask(""), self(os.Getuid() == 0); got != want {
		t.Errorf("the user's daemon says %q, want %q", got, want)
	}
}

// TestOwnDatabaseAndTheSystemsDaemon: where the user has a database, and only the system's daemon answers, nobody begins
// work anew there without a word.
func TestOwnDatabaseAndTheSystemsDaemon(t *testing.T) {
	state := folder(t)
	t.Setenv("XDG_STATE_HOME", state)
	if got := OwnDatabase(); got != "" {
		t.Errorf("without a database: %q", got)
	}
	database := filepath.Join(state, "ckptsidecar", "ckpt.db")
	must(t, os.Mkdir(filepath.Dir(database), 0o700))
	must(t, os.WriteFile(database, nil, 0o600))
	if got := OwnDatabase(); got != database {
		t.Errorf("%q, want %q", got, database)
	}
	users, system := filepath.Join(folder(t), "own"), filepath.Join(folder(t), "system")
	listen(t, Options{Path: system})
	c, err := dialFirst(t.Context(), []string{users, system}, "")
	if err != nil {
		t.Fatalf("without a database of one's own: %v", err)
	}
	_ = c.Close()
	_, err = dialFirst(t.Context(), []string{users, system}, database)
	var own *OwnDatabaseError
	if !errors.As(err, &own) {
		t.Fatalf("with a database of one's own: %v", err)
	}
	for _, part := range []string{database, users, system, "ckptsidecar serve", "--socket", EnvSocket} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	listen(t, Options{Path: users})
	if c, err = dialFirst(t.Context(), []string{users, system}, database); err != nil {
		t.Fatalf("where one's own daemon answers: %v", err)
	}
	_ = c.Close()
}

func TestDialShowsTheTellingFailure(t *testing.T) {
	users := defaults(t)
	stale(t, users)
	_, err := Dial(t.Context(), "")
	if err == nil || !strings.Contains(err.Error(), users) || strings.Contains(err.Error(), Default(true)) {
		t.Errorf("%v, want the stale one of %s, not the missing ones", err, users)
	}
}
