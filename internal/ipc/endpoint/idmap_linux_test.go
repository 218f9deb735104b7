package endpoint

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestIsIdentity(t *testing.T) {
	for _, tc := range []struct {
		text string
		want bool
	}{
		{"         0          0 4294967295\n", true},
		{"0 0 1000\n1000 1000 4294966295\n", true},
		{"0 1000 1\n", false},       // a rootless container
		{"0 100000 65536\n", false}, // an unprivileged container
		{"0 0 65536\n", false},      // an identity map, but not for all ids
		{"1 1 4294967294\n", false}, // root is missing
		{"0 0 1000\n1000 5000 1\n", false},
		{"", false},
		{"nonsense\n", false},
	} {
		if got := isIdentity(tc.text); got != tc.want {
			t.Errorf("isIdentity(%q) = %v", tc.text, got)
		}
	}
}

func TestCheckIdentityMapInAUserNamespace(t *testing.T) {
	text, err := os.ReadFile("/proc/self/uid_map")
	must(t, err)
	if err := CheckIdentityMap(); (err == nil) != isIdentity(string(text)) {
		t.Errorf("here: %v, with the map %q", err, text)
	}
	var out strings.Builder
	cmd := child(t, "idmap", filepath.Join(folder(t), "s"), &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
	})
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Skipf("no user namespaces here: %v", err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{ErrIdentityMap.Error(), ErrIdentityMap.Error(), "single true: <nil>"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("in a user namespace it says %q, want %q", lines[i], want)
		}
	}
}
