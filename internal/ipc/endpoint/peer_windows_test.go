package endpoint

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/windows"
)

const (
	sidA     = "S-1-5-21-1-2-3-1001"
	sidB     = "S-1-5-21-1-2-3-1002"
	sidGroup = "S-1-5-21-1-2-3-2000"
)

func TestAdmit(t *testing.T) {
	multi := doorman{self: sidA, adminGroup: sidGroup}
	single := doorman{self: sidA, singleUser: true, adminGroup: sidGroup}
	for _, tc := range []struct {
		name      string
		door      doorman
		cred      credentials
		in, admin bool
	}{
		{"anybody", multi, credentials{user: sidB}, true, false},
		{"LocalSystem", multi, credentials{user: sidSystem}, true, true},
		{"elevated", multi, credentials{user: sidB, groups: []string{sidAdmins}}, true, true},
		{"admin group", multi, credentials{user: sidB, groups: []string{sidGroup}}, true, true},
		{"anonymous", multi, credentials{user: sidAnonymous}, false, false},
		{"nobody", multi, credentials{}, false, false},
		{"network", multi, credentials{user: sidB, groups: []string{sidNetwork, sidAdmins}}, false, false},
		{"own", single, credentials{user: sidA}, true, true},
		{"own, elevated other", single, credentials{user: sidB, groups: []string{sidAdmins}}, true, true},
		{"own, other", single, credentials{user: sidB}, false, false},
		{"own, other of the admin group", single, credentials{user: sidB, groups: []string{sidGroup}}, false, false},
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

func TestGroupsForDenialGrantNothing(t *testing.T) {
	sid := func(s string) *windows.SID {
		v, err := windows.StringToSid(s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	got := effective([]windows.SIDAndAttributes{
		{Sid: sid(sidAdmins), Attributes: windows.SE_GROUP_USE_FOR_DENY_ONLY},
		{Sid: sid(sidA), Attributes: windows.SE_GROUP_ENABLED | windows.SE_GROUP_USE_FOR_DENY_ONLY},
		{Sid: sid(sidB), Attributes: 0},
		{Sid: sid(sidGroup), Attributes: windows.SE_GROUP_ENABLED | windows.SE_GROUP_MANDATORY},
	})
	if !slices.Equal(got, []string{sidGroup}) {
		t.Errorf("effective = %v, want the enabled group only", got)
	}
}

func TestOwnProcessStartedBeforeNow(t *testing.T) {
	me := windows.CurrentProcess()
	if err := startedBefore(me, time.Now()); err != nil {
		t.Errorf("this process: %v", err)
	}
	if err := startedBefore(me, time.Now().Add(-time.Hour)); err == nil {
		t.Error("a process that began after the connection was taken for its maker")
	}
}

// firstContact makes the extra connection that go-winio's listener needs under
// Wine before it accepts any other.
func firstContact(path string) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if c, err := dial(ctx, path); err == nil {
		_ = c.Close()
	}
}

func TestPipePeerIsThisProcess(t *testing.T) {
	path := pipePrefix + "ckptsidecar-test-peer"
	l, err := Listen(t.Context(), Options{Path: path, SingleUser: true, Report: func(err error) { t.Log(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peers := make(chan Peer, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p, _ := PeerOf(c)
			peers <- p
			_ = c.Close()
		}
	}()
	firstContact(path)
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	self, err := selfSID()
	if err != nil {
		t.Fatal(err)
	}
	if p := <-peers; p.Owner != self || p.PID != os.Getpid() {
		t.Errorf("peer = %+v, want %s and pid %d", p, self, os.Getpid())
	}
	if second, err := Listen(t.Context(), Options{Path: path, SingleUser: true}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second listener: %v, %v; want ErrInUse", second, err)
	}
}

func TestDialMissingPipe(t *testing.T) {
	path := pipePrefix + "ckptsidecar-test-none"
	_, err := Dial(t.Context(), path)
	var de *DialError
	if !errors.As(err, &de) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Dial = %v, want a DialError that the pipe does not exist", err)
	}
}

func TestTrustedOwners(t *testing.T) {
	self, err := selfSID()
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]bool{sidSystem: true, sidAdmins: true, self: true, sidB: false, "S-1-1-0": false} {
		sid, err := windows.StringToSid(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := trusted(sid); got != want {
			t.Errorf("trusted(%s) = %v", s, got)
		}
	}
}
