//go:build linux || darwin

package endpoint

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// withUmask is only for tests that do not run in parallel, because the umask
// belongs to the whole process.
func withUmask(t *testing.T, mask int) {
	t.Helper()
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}

func TestModesWhateverTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o777} {
		for _, tc := range []struct {
			o            Options
			socket, made os.FileMode
		}{
			{Options{}, 0o660, 0o755},
			{Options{SingleUser: true}, 0o600, 0o700},
			{Options{Mode: 0o666}, 0o666, 0o755},
		} {
			dir := folder(t)
			withUmask(t, mask)
			tc.o.Path = filepath.Join(dir, "a", "b", "s")
			l := listen(t, tc.o)
			for name, want := range map[string]os.FileMode{"a": tc.made, "a/b": tc.made, "a/b/s": tc.socket, "a/b/s.lock": 0o600} {
				fi, err := os.Lstat(filepath.Join(dir, name))
				must(t, err)
				if got := fi.Mode().Perm(); got != want {
					t.Errorf("umask %o, %+v: %s is %o, want %o", mask, tc.o, name, got, want)
				}
			}
			must(t, l.Close())
			syscall.Umask(0o022)
		}
	}
}

// TestSocketIsNeverSeenUnfinished: while sockets come and go, a watcher must
// never see a socket with more rights than configured, nor one without a
// listener. A client is also refused if the socket that it found is removed
// before it connects, so a refusal counts only if the socket stays.
func TestSocketIsNeverSeenUnfinished(t *testing.T) {
	withUmask(t, 0)
	path := filepath.Join(folder(t), "s")
	var stopped atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stopped.Load() {
			before, err := os.Lstat(path)
			if err != nil {
				continue
			}
			if before.Mode().Perm() != 0o600 {
				t.Errorf("the socket was seen with %v", before.Mode())
				return
			}
			c, err := net.Dial("unix", path)
			if err == nil {
				c.Close()
				continue
			}
			after, gone := os.Lstat(path)
			if isStale(err) && gone == nil && os.SameFile(before, after) && before.ModTime().Equal(after.ModTime()) {
				t.Error("the socket was seen and nobody listened")
				return
			}
		}
	})
	for range 300 {
		l, err := Listen(t.Context(), Options{Path: path, SingleUser: true})
		must(t, err)
		must(t, l.Close())
	}
	stopped.Store(true)
	wg.Wait()
}

func TestGroupOwnsTheSocket(t *testing.T) {
	needRoot(t)
	path := filepath.Join(folder(t), "s")
	listen(t, Options{Path: path, Group: "4242"})
	fi, err := os.Lstat(path)
	must(t, err)
	if st := fi.Sys().(*syscall.Stat_t); st.Gid != 4242 || st.Uid != 0 {
		t.Errorf("the socket belongs to %d:%d, want 0:4242", st.Uid, st.Gid)
	}
	member := &syscall.Credential{Uid: 1000, Gid: 1000, Groups: []uint32{4242}}
	if got, _ := askAs(t, path, member); !strings.HasPrefix(got, "uid:1000 ") {
		t.Errorf("a member of the group got %q", got)
	}
	if got, _ := askAs(t, path, asUser(1001)); !strings.Contains(got, "not allowed to connect") {
		t.Errorf("a stranger got %q", got)
	}
}

func TestNothingStaysBesideTheSocket(t *testing.T) {
	dir := folder(t)
	l := listen(t, Options{Path: filepath.Join(dir, "s")})
	names := func() (list []string) {
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return list
	}
	if got := strings.Join(names(), " "); got != "s s.lock" {
		t.Errorf("while it runs: %q", got)
	}
	must(t, l.Close())
	if got := strings.Join(names(), " "); got != "s.lock" {
		t.Errorf("after Close: %q", got)
	}
}

func TestCloseRemovesOnlyItsOwnSocket(t *testing.T) {
	path := filepath.Join(folder(t), "s")
	l := listen(t, Options{Path: path})
	must(t, os.Remove(path))
	other, err := net.Listen("unix", path)
	must(t, err)
	defer other.Close()
	must(t, l.Close())
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("Close removed another's socket: %v", err)
	}
}

func TestCloseWhenTheSocketIsGone(t *testing.T) {
	path := filepath.Join(folder(t), "s")
	l := listen(t, Options{Path: path})
	must(t, os.Remove(path))
	must(t, l.Close())
}

func TestPathLength(t *testing.T) {
	dir := folder(t)
	fits := filepath.Join(dir, strings.Repeat("x", maxPath-len(dir)-1))
	listen(t, Options{Path: fits})
	if got, want := ask(fits), self(os.Getuid() == 0); got != want {
		t.Errorf("at the limit the server says %q, want %q", got, want)
	}
	_, listenErr := Listen(t.Context(), Options{Path: fits + "x"})
	_, dialErr := Dial(t.Context(), fits+"x")
	for _, err := range []error{listenErr, dialErr} {
		if err == nil || !strings.Contains(err.Error(), "--socket") || !strings.Contains(err.Error(), "too long") {
			t.Errorf("one above the limit: %v", err)
		}
	}
	deep := filepath.Join(dir, strings.Repeat("d", maxPath-len(dir)-4), "s")
	if _, err := Listen(t.Context(), Options{Path: deep}); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a folder too long to bind in: %v", err)
	}
}

func TestRelativeAndAtNamesAreFiles(t *testing.T) {
	dir := folder(t)
	t.Chdir(dir)
	l := listen(t, Options{Path: "@s"})
	if fi, err := os.Lstat(filepath.Join(dir, "@s")); err != nil || fi.Mode()&os.ModeSocket == 0 {
		t.Errorf("no socket file for @s, so it went to the abstract name space: %v", err)
	}
	if got, want := ask("@s"), self(os.Getuid() == 0); got != want {
		t.Errorf("the server says %q, want %q", got, want)
	}
	if _, name := l.Addr().Network(), l.Addr().String(); name != filepath.Join(dir, "@s") {
		t.Errorf("Addr = %s", name)
	}
}

func TestModeWithMoreThanPermissions(t *testing.T) {
	if _, err := Listen(t.Context(), Options{Path: filepath.Join(folder(t), "s"), Mode: os.ModeSetuid | 0o600}); err == nil {
		t.Error("a setuid socket mode was taken")
	}
}

func TestFromListener(t *testing.T) {
	path := filepath.Join(folder(t), "s")
	made, err := net.Listen("unix", path)
	must(t, err)
	f, err := made.(*net.UnixListener).File()
	must(t, err)
	inherited, err := net.FileListener(f)
	must(t, err)
	l, err := FromListener(inherited, Options{})
	must(t, err)
	go answer(l)
	if got, want := ask(path), self(os.Getuid() == 0); got != want {
		t.Errorf("the server says %q, want %q", got, want)
	}
	must(t, l.Close())
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("Close removed a socket that is not ours: %v", err)
	}
	// The same holds for a listener that would unlink its socket by itself.
	l, err = FromListener(made, Options{})
	must(t, err)
	must(t, l.Close())
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("Close removed a socket that is not ours: %v", err)
	}
}

func TestFromListenerRefusesOtherKinds(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer tcp.Close()
	packets, err := net.Listen("unixpacket", filepath.Join(folder(t), "s"))
	if err != nil {
		t.Logf("no unixpacket here: %v", err)
		packets = tcp
	}
	defer packets.Close()
	for _, l := range []net.Listener{tcp, packets} {
		if _, err := FromListener(l, Options{SingleUser: true}); err == nil {
			t.Errorf("a %s listener was taken", l.Addr().Network())
		}
	}
}

// TestBindReplacesNothing: a file that appears after the check of the path must
// survive as well.
func TestBindReplacesNothing(t *testing.T) {
	dir := folder(t)
	path := filepath.Join(dir, "s")
	must(t, os.WriteFile(path, []byte("precious"), 0o600))
	s, err := newSite(Options{Path: path})
	must(t, err)
	if _, _, err := s.bind(t.Context()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("bind = %v, want fs.ErrExist", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Error("what was there is gone")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("bind left %v behind", left)
	}
}
