//go:build linux || darwin

package endpoint

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSquattedPathIsRefusedAndLeftAlone(t *testing.T) {
	put := map[string]func(path string) error{
		"a regular file":  func(p string) error { return os.WriteFile(p, []byte("mine"), 0o600) },
		"a folder":        func(p string) error { return os.Mkdir(p, 0o755) },
		"a symbolic link": func(p string) error { return os.Symlink("elsewhere", p) },
		"a FIFO":          func(p string) error { return unix.Mkfifo(p, 0o600) },
		"that cannot be checked": func(p string) error {
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: p, Net: "unixgram"})
			if err == nil {
				t.Cleanup(func() { c.Close() })
			}
			return err
		},
	}
	for what, make := range put {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(folder(t), "s")
			must(t, make(path))
			before, err := os.Lstat(path)
			must(t, err)
			wantOccupied(t, path, what)
			after, err := os.Lstat(path)
			if err != nil || !os.SameFile(before, after) {
				t.Errorf("what was there is gone: %v", err)
			}
		})
	}
}

// wantOccupied checks that Listen refuses, with an error that says what is
// there and what to do.
func wantOccupied(t *testing.T, path, what string) {
	t.Helper()
	l, err := Listen(t.Context(), Options{Path: path})
	if err == nil {
		l.Close()
		t.Fatal("the path was taken over")
	}
	var occupied *OccupiedError
	if !errors.As(err, &occupied) || errors.Is(err, ErrInUse) {
		t.Fatalf("%v is no OccupiedError", err)
	}
	for _, part := range []string{what, path, "--socket"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestForeignSocketsAreRefused(t *testing.T) {
	needRoot(t)
	path := filepath.Join(folder(t), "s")
	l, err := net.Listen("unix", path)
	must(t, err)
	must(t, os.Chown(path, 1000, 1000))
	wantOccupied(t, path, "a live socket of uid:1000")
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, l.Close())
	wantOccupied(t, path, "a stale socket of uid:1000")
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("another user's stale socket was removed: %v", err)
	}
}

func TestLiveDaemonIsNeverStolen(t *testing.T) {
	ours := func(path string) net.Listener { return listen(t, Options{Path: path}) }
	// A socket-activated daemon holds no lock. Only its answer shows that it is
	// there.
	bare := func(path string) net.Listener {
		l, err := net.Listen("unix", path)
		must(t, err)
		wrapped, err := FromListener(l, Options{})
		must(t, err)
		t.Cleanup(func() { wrapped.Close() })
		go answer(wrapped)
		return wrapped
	}
	for name, start := range map[string]func(string) net.Listener{"ours": ours, "activated": bare} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(folder(t), "s")
			start(path)
			l, err := Listen(t.Context(), Options{Path: path})
			if err == nil {
				l.Close()
			}
			if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), path) {
				t.Fatalf("Listen = %v, want ErrInUse with the path", err)
			}
			if got, want := ask(path), self(os.Getuid() == 0); got != want {
				t.Errorf("the first daemon now says %q, want %q", got, want)
			}
		})
	}
}

// stale leaves a socket behind, as a killed daemon does.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	must(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, l.Close())
}

func TestOwnStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(folder(t), "s")
	stale(t, path)
	listen(t, Options{Path: path})
	if got, want := ask(path), self(os.Getuid() == 0); got != want {
		t.Errorf("the server says %q, want %q", got, want)
	}
}

func TestKilledDaemonIsReplaced(t *testing.T) {
	needRoot(t)
	dir := folder(t)
	must(t, os.Chown(dir, 1000, 1000))
	path := filepath.Join(dir, "s")
	stop(t, startServer(t, path, 1000))
	if got := ask(path); !strings.Contains(got, "no daemon answers") {
		t.Fatalf("after kill -9 the socket says %q", got)
	}
	startServer(t, path, 1000)
	if got, want := askAnybody(path), self(true); got != want {
		t.Errorf("the new daemon says %q, want %q", got, want)
	}
}

func TestOfManyStartersOneWins(t *testing.T) {
	for range 20 {
		path := filepath.Join(folder(t), "s")
		stale(t, path)
		var won atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				l, err := Listen(t.Context(), Options{Path: path})
				switch {
				case err == nil:
					won.Add(1)
					t.Cleanup(func() { l.Close() })
					go answer(l)
				case !errors.Is(err, ErrInUse):
					t.Errorf("a loser got %v, want ErrInUse", err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d starters won", won.Load())
		}
		if got, want := ask(path), self(os.Getuid() == 0); got != want {
			t.Fatalf("the winner's socket says %q, want %q", got, want)
		}
	}
}
