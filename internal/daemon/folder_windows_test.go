package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/windows"
)

// TestProtectFolderTakesWhatIsThere: files that were in the folder before it
// was protected belong to the folder's owner afterwards.
func TestProtectFolderTakesWhatIsThere(t *testing.T) {
	if !windows.GetCurrentProcessToken().IsElevated() {
		t.Skip("only an administrator can take files over")
	}
	dir := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(dir, "backups", "ckpt.db")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("planted"), 0o644); err != nil {
		t.Fatal(err)
	}
	const what = windows.OWNER_SECURITY_INFORMATION | windows.DACL_SECURITY_INFORMATION
	open, err := windows.SecurityDescriptorFromString("D:P(A;;FA;;;WD)")
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := open.DACL()
	if err != nil {
		t.Fatal(err)
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		t.Fatal(err)
	}
	if err := windows.SetNamedSecurityInfo(file, windows.SE_FILE_OBJECT, what|windows.PROTECTED_DACL_SECURITY_INFORMATION, user.User.Sid, nil, list, nil); err != nil {
		t.Fatal(err)
	}
	if err := ProtectFolder(dir); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Dir(file), file} {
		descriptor, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, what)
		if err != nil {
			t.Fatal(err)
		}
		owner, _, err := descriptor.Owner()
		if err != nil || !owner.IsWellKnown(windows.WinBuiltinAdministratorsSid) {
			t.Errorf("%s belongs to %v: %v", path, owner, err)
		}
		for _, other := range []string{";;;WD)", user.User.Sid.String()} {
			if text := descriptor.String(); strings.Contains(text, other) {
				t.Errorf("%s still has rights for %s: %s", path, other, text)
			}
		}
	}
	link := filepath.Join(dir, "second")
	if err := os.Link(file, link); err != nil {
		t.Fatal(err)
	}
	if err := ProtectFolder(dir); err == nil {
		t.Error("a file with a second name was taken over")
	}
}
