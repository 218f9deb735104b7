package service

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
	"github.com/ckptsidecar/ckptsidecar/packaging"
)

// programFolders are the folders in which systemd looks for programs that a unit names
// without a folder. A program that is elsewhere is copied there, because units do not see
// home folders.
var programFolders = []string{"/usr/bin", "/usr/local/bin"}

const copiedProgram = "/usr/local/bin/ckptsidecar"

// daemonFolder is the folder of the database of the system's service.
const daemonFolder = "/var/lib/ckptsidecar"

// installed is a file that belongs to an installation.
type installed struct {
	path  string
	text  []byte
	mode  os.FileMode
	after *step // the step that makes it take effect
}

func (h *systemdHost) files() ([]installed, error) {
	var list []installed
	named, err := h.namedProgram()
	if err != nil {
		return nil, err
	}
	if !h.user {
		if named == copiedProgram {
			program, err := os.ReadFile(h.program)
			if err != nil {
				return nil, err
			}
			list = append(list, installed{path: copiedProgram, text: program, mode: 0o755})
		}
		list = append(list, h.accounts()...)
	}
	for _, u := range packaging.Units(h.user) {
		list = append(list, installed{path: filepath.Join(h.units, u.To), text: []byte(packaging.File(u.Name)), mode: 0o644})
	}
	if systemdVersion() >= packaging.BackoffSince {
		list = append(list, installed{path: filepath.Join(h.units, packaging.Backoff.To),
			text: []byte(packaging.File(packaging.Backoff.Name)), mode: 0o644})
	}
	if named != "" {
		list = append(list, installed{path: h.naming(), text: h.namingText(named), mode: 0o644})
	}
	return list, nil
}

// accounts returns the user, the groups and the folders of the system's service.
func (h *systemdHost) accounts() []installed {
	const users, folders = "/etc/sysusers.d/ckptsidecar.conf", "/etc/tmpfiles.d/ckptsidecar.conf"
	// An earlier installation may have written the file and failed at the command.
	run := func(made func() bool, name string, args ...string) *step {
		s := commandStep(name, args...)
		s.done = func(changed bool) bool { return !changed && made() }
		return &s
	}
	return []installed{
		{users, []byte(packaging.File("systemd/ckptsidecar.sysusers")), 0o644, run(hasAccounts, "systemd-sysusers", users)},
		{folders, []byte(packaging.File("systemd/ckptsidecar.tmpfiles")), 0o644, run(hasFolder, "systemd-tmpfiles", "--create", folders)},
	}
}

// hasAccounts reports whether the user and the groups of the system's service exist.
func hasAccounts() bool {
	_, err := user.Lookup("ckptsidecar")
	for _, name := range []string{"ckptsidecar", "ckptsidecar-audit"} {
		if err == nil {
			_, err = user.LookupGroup(name)
		}
	}
	return err == nil
}

func hasFolder() bool { return isThere(daemonFolder) }

// namedProgram returns the program that the service must be told about, "" if systemd
// finds it without help.
func (h *systemdHost) namedProgram() (string, error) {
	switch {
	case slices.Contains(programFolders, filepath.Dir(h.program)) && filepath.Base(h.program) == "ckptsidecar" && !isThere(h.naming()):
		return "", nil
	case !h.user:
		return copiedProgram, nil
	case strings.HasPrefix(h.program, os.TempDir()+"/"):
		return "", fmt.Errorf("this program is in %s, a temporary folder: move it to a permanent place first", filepath.Dir(h.program))
	}
	return h.program, nil
}

// naming returns the path of the file that says where the program is. It also marks a
// program that was copied, which is removed together with the service.
func (h *systemdHost) naming() string {
	return filepath.Join(h.units, "ckptsidecar.service.d/10-program.conf")
}

func (h *systemdHost) namingText(program string) []byte {
	system := ""
	if !h.user {
		system = " --system"
	}
	quoted := strings.ReplaceAll(strconv.Quote(program), "%", "%%")
	return fmt.Appendf(nil, "# Made by `ckptsidecar service install`, because systemd would not find the program by "+
		"itself.\n[Service]\nExecStart=\nExecStart=%[1]s serve%[2]s\nExecReload=\nExecReload=%[1]s config check%[2]s\n"+
		"ExecReload=sh -c \"kill -HUP ${MAINPID}\"\n", quoted, system)
}

func (f installed) step() step {
	return step{
		say: "write " + f.path,
		done: func(bool) bool {
			text, err := os.ReadFile(f.path)
			return err == nil && bytes.Equal(text, f.text)
		},
		do: func(context.Context) error {
			if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
				return err
			}
			return osfile.Write(f.path, f.text, f.mode)
		},
	}
}
