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

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// folderRights is the security descriptor of the data folder of a daemon for all users.
// Administrators own the folder. It inherits nothing, and gives LocalSystem and Administrators
// full access to everything below it. Every user can create folders in ProgramData, so a folder
// without this descriptor can belong to any user.
const folderRights = "O:BAG:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)"

// ProtectFolder creates a folder that only LocalSystem and Administrators can access, or restricts
// an existing folder to them.
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
	if err := windows.SetNamedSecurityInfo(dir, windows.SE_FILE_OBJECT, what, owner, nil, list, nil); err != nil {
		return err
	}
	return retake(dir, owner)
}

// fileRights is the access list for existing files in the folder: the same that new files get.
const fileRights = "D:AI(A;;FA;;;SY)(A;;FA;;;BA)"

// retake gives existing files in the folder to the new owner. An owner can change the rights of a
// file at any time, so a user who had put a file there could still read and write it. At this
// point, the folder is already closed to other users.
func retake(dir string, owner *windows.SID) error {
	descriptor, err := windows.SecurityDescriptorFromString(fileRights)
	if err != nil {
		return err
	}
	list, _, err := descriptor.DACL()
	if err != nil {
		return err
	}
	mayTakeOwnership()
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if err := isPlain(path, entry); err != nil {
			return err
		}
		// Set the owner first: an owner can set the rights, whatever they were.
		err = windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION, owner, nil, nil, nil)
		if err == nil {
			const what = windows.DACL_SECURITY_INFORMATION | windows.UNPROTECTED_DACL_SECURITY_INFORMATION
			err = windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, what, nil, nil, list, nil)
		}
		if err != nil {
			return fmt.Errorf("the ownership of %s cannot be taken over: %w", path, err)
		}
		return nil
	})
}

// isPlain refuses links: they would change the rights of another file.
func isPlain(path string, entry fs.DirEntry) error {
	if entry.IsDir() {
		return nil
	}
	if !entry.Type().IsRegular() {
		return fmt.Errorf("%s is a link to a file outside the folder: remove it", path)
	}
	names, err := osfile.NamesAt(path)
	if err != nil {
		return err
	}
	if names > 1 {
		return fmt.Errorf("%s has another name outside the folder (a hard link): remove it", path)
	}
	return nil
}

// mayTakeOwnership enables the privilege of administrators to take ownership. If that fails,
// taking ownership returns the error.
func mayTakeOwnership() {
	var token windows.Token
	if windows.OpenProcessToken(windows.CurrentProcess(), windows.TOKEN_ADJUST_PRIVILEGES|windows.TOKEN_QUERY, &token) != nil {
		return
	}
	defer token.Close()
	privileges := windows.Tokenprivileges{PrivilegeCount: 1}
	privileges.Privileges[0].Attributes = windows.SE_PRIVILEGE_ENABLED
	if windows.LookupPrivilegeValue(nil, windows.StringToUTF16Ptr("SeTakeOwnershipPrivilege"), &privileges.Privileges[0].Luid) == nil {
		_ = windows.AdjustTokenPrivileges(token, false, &privileges, 0, nil, nil)
	}
}

// IsProtected reports whether a folder has the access that ProtectFolder sets.
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

// checkDataFolder refuses a folder that another user owns, because that user could put another
// database into it. It creates a missing folder.
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
		return fmt.Errorf("the owner of %s cannot be read: %w", dir, err)
	}
	owner, _, err := descriptor.Owner()
	if err != nil {
		return fmt.Errorf("the owner of %s cannot be read: %w", dir, err)
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
