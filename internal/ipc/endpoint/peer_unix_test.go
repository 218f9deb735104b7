//go:build linux || darwin

package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPeerIsWhoConnected(t *testing.T) {
	path := filepath.Join(folder(t), "s")
	listen(t, Options{Path: path})
	if got, want := ask(path), self(os.Getuid() == 0); got != want {
		t.Errorf("the server says %q, want %q", got, want)
	}
}

func TestTwoUsersAreTwoPeers(t *testing.T) {
	needRoot(t)
	path := filepath.Join(folder(t), "s")
	listen(t, Options{Path: path, Mode: 0o666})
	for _, uid := range []uint32{1000, 1001} {
		got, pid := askAs(t, path, asUser(uid))
		if want := fmt.Sprintf("uid:%d pid:%d admin:false", uid, pid); got != want {
			t.Errorf("the server says %q, want %q", got, want)
		}
	}
}

func TestOverflowUserIsClosedAndServiceGoesOn(t *testing.T) {
	needRoot(t)
	path := filepath.Join(folder(t), "s")
	reports := make(chan error, 1)
	listen(t, Options{Path: path, Mode: 0o666, Report: func(err error) { reports <- err }})
	if got, _ := askAs(t, path, asUser(overflowID)); got != "closed" {
		t.Errorf("uid %d got %q, want the connection closed", overflowID, got)
	}
	if err := <-reports; !errors.Is(err, ErrRefused) {
		t.Errorf("reported %v, want ErrRefused", err)
	}
	if got, want := ask(path), self(true); got != want {
		t.Errorf("after a refusal the next peer got %q, want %q", got, want)
	}
}

func TestSingleUserLetsInItsUserAndRootOnly(t *testing.T) {
	needRoot(t)
	dir := folder(t)
	must(t, os.Chown(dir, 1000, 1000))
	path := filepath.Join(dir, "s")
	startServer(t, path, 1000)
	own, pid := askAs(t, path, asUser(1000))
	if want := fmt.Sprintf("uid:1000 pid:%d admin:true", pid); own != want {
		t.Errorf("its own user got %q, want %q", own, want)
	}
	if other, _ := playAsker(t, "ask anybody", path, asUser(1001)); other != "closed" {
		t.Errorf("another user got %q, want the connection closed", other)
	}
	if got, want := askAnybody(path), self(true); got != want {
		t.Errorf("root got %q, want %q", got, want)
	}
}

func TestAdmit(t *testing.T) {
	multi := doorman{self: 900, adminGID: 50}
	single := doorman{self: 1000, adminGID: noGroup, singleUser: true}
	for _, tc := range []struct {
		name  string
		door  doorman
		cred  credentials
		in    bool
		admin bool
	}{
		{"root", multi, credentials{uid: 0}, true, true},
		{"anybody", multi, credentials{uid: 1000, gid: 1000}, true, false},
		{"the daemon's own user", multi, credentials{uid: 900}, true, false},
		{"primary group", multi, credentials{uid: 1000, gid: 50}, true, true},
		{"supplementary group", multi, credentials{uid: 1000, groups: []uint32{7, 50}}, true, true},
		{"overflow", multi, credentials{uid: overflowID}, false, false},
		{"overflow in the admin group", multi, credentials{uid: overflowID, gid: 50}, false, false},
		{"own", single, credentials{uid: 1000}, true, true},
		{"own root", single, credentials{uid: 0}, true, true},
		{"own other", single, credentials{uid: 1001}, false, false},
		{"no admin group is no group", doorman{self: 900, adminGID: noGroup}, credentials{uid: 1000, gid: 0xffffffff, groups: []uint32{0xffffffff}}, true, false},
	} {
		p, err := tc.door.admit(tc.cred)
		if (err == nil) != tc.in || p.Admin != tc.admin {
			t.Errorf("%s: admit = %+v, %v; want in %v, admin %v", tc.name, p, err, tc.in, tc.admin)
		}
		if err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v is no ErrRefused", tc.name, err)
		}
	}
}

func TestAdminGroupIsResolvedAtStart(t *testing.T) {
	for _, tc := range []struct{ group, says string }{
		{"no-such-group-here", "no-such-group-here"},
		{"65534", "unknown group"},
	} {
		l, err := Listen(t.Context(), Options{Path: filepath.Join(folder(t), "s"), AdminGroup: tc.group})
		if err == nil {
			l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("admin group %s: %v, want an error with %q", tc.group, err, tc.says)
		}
	}
}

func TestConnectionWithoutKernelIdentityIsRefused(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if pc, err := (doorman{}).identify(a); pc != nil || !errors.Is(err, ErrRefused) {
		t.Errorf("identify = %v, %v; want ErrRefused", pc, err)
	}
}

func TestIdentityIsOfTheConnectNotOfNow(t *testing.T) {
	path := filepath.Join(folder(t), "s")
	l, err := Listen(t.Context(), Options{Path: path})
	must(t, err)
	defer l.Close()
	c, err := Dial(context.Background(), path)
	must(t, err)
	sc, err := l.Accept()
	must(t, err)
	defer sc.Close()
	must(t, c.Close())
	if _, err := io.ReadAll(sc); err != nil {
		t.Fatal(err)
	}
	if p, ok := PeerOf(sc); !ok || p.PID != os.Getpid() {
		t.Errorf("after the peer left, PeerOf = %+v, %v", p, ok)
	}
}

func TestAcceptedConnectionKeepsHalfClose(t *testing.T) {
	path := filepath.Join(folder(t), "s")
	l, err := Listen(t.Context(), Options{Path: path})
	must(t, err)
	defer l.Close()
	c, err := Dial(context.Background(), path)
	must(t, err)
	defer c.Close()
	sc, err := l.Accept()
	must(t, err)
	defer sc.Close()
	must(t, sc.(interface{ CloseWrite() error }).CloseWrite())
	if b, err := io.ReadAll(c); err != nil || len(b) != 0 {
		t.Errorf("read %q, %v", b, err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Errorf("the other direction is closed too: %v", err)
	}
}
