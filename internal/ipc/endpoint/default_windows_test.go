package endpoint

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Microsoft/go-winio"
)

// TestUsualPipes: a user's own daemon has a pipe of its own beside the pipe of the service.
func TestUsualPipes(t *testing.T) {
	sid, err := selfSID()
	if err != nil || !strings.HasPrefix(sid, "S-1-") {
		t.Fatal(sid, err)
	}
	if got, want := Usual(), []string{`\\.\pipe\ckptsidecar-` + sid, `\\.\pipe\ckptsidecar`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOwnDatabaseIsBelowTheLocalData(t *testing.T) {
	local := t.TempDir()
	t.Setenv("LOCALAPPDATA", local)
	if got := OwnDatabase(); got != "" {
		t.Errorf("without a database: %q", got)
	}
	database := filepath.Join(local, "ckptsidecar", "ckpt.db")
	if err := errors.Join(os.Mkdir(filepath.Dir(database), 0o700), os.WriteFile(database, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := OwnDatabase(); got != database {
		t.Errorf("%q, want %q", got, database)
	}
	t.Setenv("LOCALAPPDATA", "relative")
	if got := OwnDatabase(); got != "" {
		t.Errorf("below a relative folder: %q", got)
	}
}

// TestSquatterDoesNotKeepAUserFromTheService: any user can create a pipe with the name of another user's own pipe.
// Windows lets only a privileged process give a pipe away, so the test works only if it has that right, as under Wine.
func TestSquatterDoesNotKeepAUserFromTheService(t *testing.T) {
	own, service := pipePrefix+"ckptsidecar-test-own", pipePrefix+"ckptsidecar-test-service"
	l, err := winio.ListenPipe(own, &winio.PipeConfig{SecurityDescriptor: "O:WDD:P(A;;GA;;;WD)"})
	if err != nil {
		t.Skipf("cannot make a pipe of another owner: %v", err)
	}
	accept(t, l)
	firstContact(own)
	var stranger *DialError
	if _, err := dialFirst(t.Context(), []string{own, service}, ""); !errors.As(err, &stranger) || !stranger.Stranger() {
		t.Errorf("where only a squatter listens: %v, want the stranger named", err)
	}
	real, err := Listen(t.Context(), Options{Path: service})
	if err != nil {
		t.Fatal(err)
	}
	accept(t, real)
	firstContact(service)
	c, err := dialFirst(t.Context(), []string{own, service}, "")
	if err != nil {
		t.Fatalf("a squatter at the own pipe keeps the user from the service: %v", err)
	}
	_ = c.Close()
}

// accept keeps the connections of a listener open until the test ends.
func accept(t *testing.T, l net.Listener) {
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
}
