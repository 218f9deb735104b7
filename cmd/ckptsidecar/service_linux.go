package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/packaging"
)

// Where systemd looks for programs that a unit names without a folder, and
// where a program goes that lies elsewhere: units do not see homes.
var programFolders = []string{"/usr/bin", "/usr/local/bin"}

const copiedProgram = "/usr/local/bin/ckptsidecar"

// systemdHost installs into the folders for what an administrator, or a user,
// has made. Where a package has brought the units, it only switches them on.
type systemdHost struct {
	user    bool
	units   string // the folder of the units
	program string // this one
	shipped string // a unit file that a package has brought, "" for none
	version int
}

var bothUnits = []string{"ckptsidecar.socket", "ckptsidecar.service"}

func newServiceHost(a *app, user bool) (serviceHost, error) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil, errors.New("systemd does not run on this machine: start `ckptsidecar serve` with what does its work here")
	}
	h := &systemdHost{user: user, units: "/etc/systemd/system"}
	brought := []string{"/usr/lib/systemd/system", "/lib/systemd/system"}
	if user {
		brought = []string{"/usr/lib/systemd/user", "/lib/systemd/user"}
		home := a.env("XDG_CONFIG_HOME")
		if !filepath.IsAbs(home) {
			home = filepath.Join(a.env("HOME"), ".config")
		}
		if !filepath.IsAbs(home) {
			return nil, errors.New("the environment names no folder for your units: set HOME")
		}
		h.units = filepath.Join(home, "systemd/user")
	}
	for _, dir := range brought {
		if unit := filepath.Join(dir, "ckptsidecar.service"); h.shipped == "" && isThere(unit) {
			h.shipped = unit
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("this program cannot find itself: %w", err)
	}
	h.program, err = filepath.EvalSymlinks(self)
	return h, err
}

func (h *systemdHost) rights() error {
	if !h.user && os.Geteuid() != 0 {
		return errors.New("the system's service is root's to change: use sudo, or --user for a service of your own")
	}
	return nil
}

// installation writes the units where no package has brought them, and starts
// what they describe.
func (h *systemdHost) installation() ([]serviceStep, error) {
	var steps []serviceStep
	if h.shipped == "" {
		files, err := h.files()
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			steps = append(steps, f.step())
			if f.after != nil {
				steps = append(steps, *f.after)
			}
		}
	}
	return append(steps,
		h.systemctl("daemon-reload").unless(func(changed bool) bool { return !changed }),
		h.systemctl(append([]string{"enable"}, bothUnits...)...).unless(func(bool) bool { return h.are("is-enabled") }),
		h.systemctl("restart", "ckptsidecar.service").unless(func(changed bool) bool { return !changed || !h.are("is-active") }),
		h.systemctl(append([]string{"start"}, bothUnits...)...).unless(func(bool) bool { return h.are("is-active") }),
	), nil
}

// installed is a file that belongs to an installation.
type installed struct {
	path  string
	text  []byte
	mode  os.FileMode
	after *serviceStep // what makes it count
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
		list = append(list, installed{path: filepath.Join(h.units, packaging.Backoff.To), text: []byte(packaging.File(packaging.Backoff.Name)), mode: 0o644})
	}
	if named != "" {
		list = append(list, installed{path: h.naming(), text: h.namingText(named), mode: 0o644})
	}
	return list, nil
}

// accounts are the user, the groups and the folders of the system's service.
func (h *systemdHost) accounts() []installed {
	const users, folders = "/etc/sysusers.d/ckptsidecar.conf", "/etc/tmpfiles.d/ckptsidecar.conf"
	run := func(name string, args ...string) *serviceStep {
		s := commandStep(name, args...)
		s.done = func(changed bool) bool { return !changed }
		return &s
	}
	return []installed{
		{users, []byte(packaging.File("systemd/ckptsidecar.sysusers")), 0o644, run("systemd-sysusers", users)},
		{folders, []byte(packaging.File("systemd/ckptsidecar.tmpfiles")), 0o644, run("systemd-tmpfiles", "--create", folders)},
	}
}

// namedProgram is the program that the service must be told of, "" where
// systemd finds it by itself.
func (h *systemdHost) namedProgram() (string, error) {
	switch {
	case slices.Contains(programFolders, filepath.Dir(h.program)) && filepath.Base(h.program) == "ckptsidecar" && !isThere(h.naming()):
		return "", nil
	case !h.user:
		return copiedProgram, nil
	case strings.HasPrefix(h.program, os.TempDir()+"/"):
		return "", fmt.Errorf("this program lies in %s, where it will not stay: put it in a lasting place first", filepath.Dir(h.program))
	}
	return h.program, nil
}

// naming is the file that says where the program is. It also marks a program
// that was copied, which goes when the service does.
func (h *systemdHost) naming() string {
	return filepath.Join(h.units, "ckptsidecar.service.d/10-program.conf")
}

func (h *systemdHost) namingText(program string) []byte {
	arguments := "serve"
	if !h.user {
		arguments = "serve --system"
	}
	quoted := strings.ReplaceAll(strconv.Quote(program), "%", "%%")
	return fmt.Appendf(nil, "# Made by `ckptsidecar service install`, because systemd would not find the program by itself.\n[Service]\nExecStart=\nExecStart=%s %s\n", quoted, arguments)
}

func (f installed) step() serviceStep {
	return serviceStep{
		say: "write " + f.path,
		done: func(bool) bool {
			text, err := os.ReadFile(f.path)
			return err == nil && bytes.Equal(text, f.text)
		},
		do: func(context.Context) error {
			if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
				return err
			}
			if err := writeFileAtomically(f.path, f.text); err != nil {
				return err
			}
			return os.Chmod(f.path, f.mode)
		},
	}
}

// removal takes away what installation made, and nothing of a package's.
func (h *systemdHost) removal() ([]serviceStep, error) {
	steps := []serviceStep{
		h.systemctl(append([]string{"disable", "--now"}, bothUnits...)...).unless(func(bool) bool {
			return !isThere(filepath.Join(h.units, "ckptsidecar.service")) && h.shipped == ""
		}),
	}
	if h.shipped != "" {
		return append(steps, serviceStep{say: "left: " + h.shipped + ", which belongs to a package: remove that to be rid of it"}), nil
	}
	copied := !h.user && isThere(h.naming())
	paths := []string{h.naming(), filepath.Join(h.units, packaging.Backoff.To)}
	for _, u := range packaging.Units(h.user) {
		paths = append(paths, filepath.Join(h.units, u.To))
	}
	if !h.user {
		paths = append(paths, "/etc/sysusers.d/ckptsidecar.conf", "/etc/tmpfiles.d/ckptsidecar.conf")
	}
	for _, path := range paths {
		steps = append(steps, removeStep(path))
	}
	if dir := filepath.Dir(h.naming()); isEmptyBut(dir, paths) {
		steps = append(steps, removeStep(dir))
	}
	if copied {
		steps = append(steps, removeStep(copiedProgram))
	}
	return append(steps, h.systemctl("daemon-reload").unless(func(changed bool) bool { return !changed })), nil
}

func (h *systemdHost) kept() []string {
	if h.user {
		return []string{"your checkpoints and settings"}
	}
	return []string{"/var/lib/ckptsidecar, the checkpoints, and /etc/ckptsidecar, the settings", "the user ckptsidecar, whose they are"}
}

func (h *systemdHost) control(verb string) ([]serviceStep, error) {
	if h.shipped == "" && !isThere(filepath.Join(h.units, "ckptsidecar.service")) {
		return nil, &exitError{exitNotFound, errNotInstalled.Error()}
	}
	if verb == "restart" { // who calls meanwhile waits in the socket
		return []serviceStep{h.systemctl("restart", "ckptsidecar.service")}, nil
	}
	return []serviceStep{h.systemctl(append([]string{verb}, bothUnits...)...)}, nil
}

// systemctl is a step of that command.
func (h *systemdHost) systemctl(args ...string) serviceStep {
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

func (s serviceStep) unless(done func(changed bool) bool) serviceStep {
	s.done = done
	return s
}

// commandStep runs a program, whose complaint is the error.
func commandStep(name string, args ...string) serviceStep {
	return serviceStep{
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

func removeStep(path string) serviceStep {
	return serviceStep{
		say:  "remove " + path,
		done: func(bool) bool { return !isThere(path) },
		do:   func(context.Context) error { return os.Remove(path) },
	}
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
