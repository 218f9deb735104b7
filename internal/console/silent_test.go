//go:build unix

package console

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestADaemonThatIsFrozen: a daemon takes connections and answers nothing. A page says so after the time that it waits, and so does a
// page that looks again.
func TestADaemonThatIsFrozen(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	frozen, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close()
	b := serve(t, Options{Socket: socket, Patience: 50 * time.Millisecond}).open()
	r := b.send("GET", b.base, nil, nil)
	if page := b.text("GET", b.base, nil); r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "The daemon does not answer") ||
		!strings.Contains(page, "no answer") || strings.Contains(page, "ready") {
		t.Errorf("%s: %s", r.Status, page)
	}
	r = b.send("GET", b.base, nil, func(r *http.Request) { r.Header.Set(headerLive, "1") })
	if r.Header.Get("Ckpt-Away-What") != "The daemon does not answer" || r.Header.Get("Ckpt-Away-Since") == "" {
		t.Errorf("%s: %v", r.Status, r.Header)
	}
}
