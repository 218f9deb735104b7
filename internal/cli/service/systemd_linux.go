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

// systemdHost installs into the folders for files of an administrator, or of a user. If a
// package has installed the units, it only enables them.
type systemdHost struct {
	user    bool
	units   string // the folder of the units
	program string // the path of this program
	shipped string // a unit file from a package, "" for none
}

var bothUnits = []string{"ckptsidecar.socket", "ckptsidecar.service"}

// systemctl returns a step that runs systemctl.
func (h *systemdHost) systemctl(args ...string) step {
	return commandStep("systemctl", h.scoped(args)...)
}

func (h *systemdHost) scoped(args []string) []string {
	if h.user {
		return append([]string{"--user"}, args...)
	}
	return args
}

// are asks systemctl about both units: is-active, is-enabled.
func (h *systemdHost) are(question string) bool {
	return exec.Command("systemctl", h.scoped([]string{question, "--quiet", bothUnits[0]})...).Run() == nil &&
		exec.Command("systemctl", h.scoped([]string{question, "--quiet", bothUnits[1]})...).Run() == nil
}

// isStale reports whether systemd has units in memory that differ from their files.
func (h *systemdHost) isStale() bool {
	for _, unit := range bothUnits {
		if shown, err := h.show(context.Background(), unit, "NeedDaemonReload"); err == nil && shown["NeedDaemonReload"] == "yes" {
			return true
		}
	}
	return false
}

// runsRemoved reports whether the daemon still runs a program whose file was replaced.
func (h *systemdHost) runsRemoved() bool {
	shown, err := h.show(context.Background(), bothUnits[1], "MainPID")
	if err != nil || shown["MainPID"] == "" || shown["MainPID"] == "0" {
		return false
	}
	program, err := os.Readlink("/proc/" + shown["MainPID"] + "/exe")
	return err == nil && strings.HasSuffix(program, " (deleted)")
}

func (s step) unless(done func(changed bool) bool) step {
	s.done = done
	return s
}

// commandStep returns a step that runs a program. The error contains the output of the
// program.
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

// systemdVersion returns the version, 0 if systemd does not report it.
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

// isEmptyBut reports whether a folder contains no files except these.
func isEmptyBut(dir string, paths []string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !slices.Contains(paths, filepath.Join(dir, e.Name())) })
}
