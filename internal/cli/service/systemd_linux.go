package service

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// systemdHost installs into the folders for what an administrator, or a user,
// has made. Where a package has brought the units, it only switches them on.
type systemdHost struct {
	user    bool
	units   string // the folder of the units
	program string // this one
	shipped string // a unit file that a package has brought, "" for none
}

var bothUnits = []string{"ckptsidecar.socket", "ckptsidecar.service"}

// systemctl is a step of that command.
func (h *systemdHost) systemctl(args ...string) step {
	return commandStep("systemctl", h.scoped(args)...)
}

func (h *systemdHost) scoped(args []string) []string {
	if h.user {
		return append([]string{"--user"}, args...)
	}
	return args
}

// are asks of both units: is-active, is-enabled.
func (h *systemdHost) are(question string) bool {
	return exec.Command("systemctl", h.scoped([]string{question, "--quiet", bothUnits[0]})...).Run() == nil &&
		exec.Command("systemctl", h.scoped([]string{question, "--quiet", bothUnits[1]})...).Run() == nil
}

func (s step) unless(done func(changed bool) bool) step {
	s.done = done
	return s
}

// commandStep runs a program, whose complaint is the error.
func commandStep(name string, args ...string) step {
	return step{
		say: strings.Join(append([]string{name}, args...), " "),
		do: func(ctx context.Context) error {
			out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
			if said := strings.TrimSpace(string(out)); err != nil && said != "" {
				return errors.New(said)
			}
			return err
		},
	}
}

func removeStep(path string) step {
	return step{
		say:  "remove " + path,
		done: func(bool) bool { return !isThere(path) },
		do:   func(context.Context) error { return os.Remove(path) },
	}
}

// systemdVersion is 0 where systemd does not say.
func systemdVersion() int {
	out, err := exec.Command("systemctl", "--version").Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 2 {
		return 0
	}
	version, _ := strconv.Atoi(strings.SplitN(fields[1], ".", 2)[0])
	return version
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// isEmptyBut says that a folder holds nothing but these files.
func isEmptyBut(dir string, paths []string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !slices.Contains(paths, filepath.Join(dir, e.Name())) })
}
