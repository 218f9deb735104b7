package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
)

// folderRights is the descriptor of the data folder of a daemon for all users:
// it belongs to Administrators, inherits nothing, and gives everything below it
// to LocalSystem and Administrators. Everybody may make folders in ProgramData,
// so one that was made without it may be anybody's.
const folderRights = "O:BAG:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)"

// ProtectFolder makes a folder that only LocalSystem and Administrators reach,
// or makes one that is there so.
func ProtectFolder(dir string) error {
	descriptor, err := windows.SecurityDescriptorFromString(folderRights)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return err
	}
	attributes := &windows.SecurityAttributes{SecurityDescriptor: descriptor}
	attributes.Length = uint32(unsafe.Sizeof(*attributes))
	err = windows.CreateDirectory(name, attributes)
	if err == nil || !errors.Is(err, windows.ERROR_ALREADY_EXISTS) {
		return err
	}
	return reprotect(dir, descriptor)
}

func reprotect(dir string, descriptor *windows.SECURITY_DESCRIPTOR) error {
	owner, _, err := descriptor.Owner()
	if err != nil {
		return err
	}
	list, _, err := descriptor.DACL()
	if err != nil {
		return err
	}
	const what = windows.OWNER_SECURITY_INFORMATION | windows.DACL_SECURITY_INFORMATION | windows.PROTECTED_DACL_SECURITY_INFORMATION
	return windows.SetNamedSecurityInfo(dir, windows.SE_FILE_OBJECT, what, owner, nil, list, nil)
}

// IsProtected says whether a folder is as ProtectFolder makes it.
func IsProtected(dir string) bool {
	const what = windows.OWNER_SECURITY_INFORMATION | windows.DACL_SECURITY_INFORMATION
	descriptor, err := windows.GetNamedSecurityInfo(dir, windows.SE_FILE_OBJECT, what)
	if err != nil {
		return false
	}
	text := descriptor.String()
	return strings.HasPrefix(text, "O:BA") && strings.Contains(text, "D:P") && strings.Count(text, "(") == 2 &&
		strings.Contains(text, ";;;SY)") && strings.Contains(text, ";;;BA)")
}

// checkDataFolder refuses a folder that somebody else owns, who could put
// another database into it, and makes one that is missing.
func checkDataFolder(dir string) error {
	_, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return ProtectFolder(dir)
	}
	if err != nil {
		return err
	}
	descriptor, err := windows.GetNamedSecurityInfo(dir, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return fmt.Errorf("whose %s is cannot be read: %w", dir, err)
	}
	owner, _, err := descriptor.Owner()
	if err != nil {
		return fmt.Errorf("whose %s is cannot be read: %w", dir, err)
	}
	if owner.IsWellKnown(windows.WinLocalSystemSid) || owner.IsWellKnown(windows.WinBuiltinAdministratorsSid) || isSelf(owner) {
		return nil
	}
	return fmt.Errorf("the folder %s belongs to %s, who could replace the database in it: `ckptsidecar service install` takes it over", dir, owner)
}

func isSelf(sid *windows.SID) bool {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	return err == nil && user.User.Sid.Equals(sid)
}
