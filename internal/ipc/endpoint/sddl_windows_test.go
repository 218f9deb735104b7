package endpoint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/windows"
)

// entries parses a descriptor as the kernel does and describes its DACL.
func entries(t *testing.T, sddl string) (owner string, list []string) {
	t.Helper()
	sd, err := windows.SecurityDescriptorFromString(sddl)
	if err != nil {
		t.Fatalf("%s: %v", sddl, err)
	}
	sid, _, err := sd.Owner()
	if err != nil {
		t.Fatal(err)
	}
	if control, _, err := sd.Control(); err != nil || control&windows.SE_DACL_PROTECTED == 0 {
		t.Errorf("%s is not protected against inheritance: %v", sddl, err)
	}
	dacl, _, err := sd.DACL()
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint32(dacl.AceCount) {
		var ace *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(dacl, i, &ace); err != nil {
			t.Fatal(err)
		}
		verb := "allow"
		if ace.Header.AceType == windows.ACCESS_DENIED_ACE_TYPE {
			verb = "deny"
		}
		who := (*windows.SID)(unsafe.Pointer(&ace.SidStart))
		list = append(list, fmt.Sprintf("%s %#x %s", verb, uint32(ace.Mask), who))
	}
	return sid.String(), list
}

func TestDescriptor(t *testing.T) {
	const (
		all    = "0x10000000"
		client = "0x12019b"
	)
	for name, tc := range map[string]struct{ clients, entry string }{
		"everybody": {"AU", "allow " + client + " S-1-5-11"},
		"group":     {sidGroup, "allow " + client + " " + sidGroup},
		"own":       {"", ""},
	} {
		owner, got := entries(t, descriptor(sidA, tc.clients))
		want := []string{
			"deny " + all + " " + sidNetwork,
			"deny " + all + " " + sidAnonymous,
			"allow " + all + " " + sidA,
			"allow " + client + " " + sidSystem,
			"allow " + client + " " + sidAdmins,
		}
		if tc.entry != "" {
			want = append(want, tc.entry)
		}
		if owner != sidA || !slices.Equal(got, want) {
			t.Errorf("%s: owner %s, entries\n%s\nwant\n%s", name, owner, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestClientRightsMakeNoInstances(t *testing.T) {
	if clientRights&createInstance != 0 || clientRights != 0x12019b {
		t.Errorf("clientRights = %#x", clientRights)
	}
}

func TestClientsOf(t *testing.T) {
	for name, tc := range map[string]struct {
		o    Options
		want string
	}{
		"everybody": {Options{}, "AU"},
		"group":     {Options{Group: sidGroup}, sidGroup},
		"own":       {Options{SingleUser: true, Group: sidGroup}, ""},
	} {
		if got, err := clientsOf(tc.o); err != nil || got != tc.want {
			t.Errorf("%s: clientsOf = %q, %v", name, got, err)
		}
	}
	if _, err := clientsOf(Options{Group: "S-1-x;;(A;;GA;;;WD)"}); err == nil {
		t.Error("a group that is no SID went into the descriptor")
	}
}

func TestCheckName(t *testing.T) {
	for path, ok := range map[string]bool{
		`\\.\pipe\ckptsidecar`: true,
		`\\.\PIPE\x`:           true,
		`\\.\pipe\`:            false,
		`\\server\pipe\x`:      false,
		`C:\ckptsidecar.sock`:  false,
		``:                     false,
		pipePrefix + strings.Repeat("x", maxPath-len(pipePrefix)):   true,
		pipePrefix + strings.Repeat("x", maxPath-len(pipePrefix)+1): false,
	} {
		if err := checkName(path); (err == nil) != ok {
			t.Errorf("checkName(%q) = %v", path, err)
		}
	}
}
