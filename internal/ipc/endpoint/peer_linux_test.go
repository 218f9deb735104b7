package endpoint

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestAdminGroupMembers(t *testing.T) {
	needRoot(t)
	const admins = 4242
	path := filepath.Join(folder(t), "s")
	listen(t, Options{Path: path, Mode: 0o666, AdminGroup: "4242"})
	many := make([]uint32, 300) // more than the buffer of the first try holds
	for i := range many {
		many[i] = uint32(10000 + i)
	}
	for _, tc := range []struct {
		name  string
		cred  syscall.Credential
		admin string
	}{
		{"stranger", syscall.Credential{Uid: 1000, Gid: 1000}, "admin:false"},
		{"primary", syscall.Credential{Uid: 1000, Gid: admins}, "admin:true"},
		{"supplementary", syscall.Credential{Uid: 1000, Gid: 1000, Groups: []uint32{5, admins}}, "admin:true"},
		{"one of many", syscall.Credential{Uid: 1000, Gid: 1000, Groups: append(many, admins)}, "admin:true"},
		{"many others", syscall.Credential{Uid: 1000, Gid: 1000, Groups: many}, "admin:false"},
	} {
		if got, _ := askAs(t, path, &tc.cred); !strings.HasSuffix(got, tc.admin) {
			t.Errorf("%s: the server says %q, want %s", tc.name, got, tc.admin)
		}
	}
}
