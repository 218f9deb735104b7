package service

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/packaging"
)

func NewHost(a *cli.App, user bool) (Host, error) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil, errors.New("systemd does not run on this machine: start `ckptsidecar serve` with this machine's own service manager")
	}
	h := &systemdHost{user: user, units: "/etc/systemd/system"}
	brought := []string{"/usr/lib/systemd/system", "/lib/systemd/system"}
	if user {
		brought = []string{"/usr/lib/systemd/user", "/lib/systemd/user"}
		home := a.Env("XDG_CONFIG_HOME")
		if !filepath.IsAbs(home) {
			home = filepath.Join(a.Env("HOME"), ".config")
		}
		if !filepath.IsAbs(home) {
			return nil, errors.New("ckptsidecar cannot find the folder of your systemd units: set HOME")
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
		return nil, fmt.Errorf("the path of this program is unknown: %w", err)
	}
	h.program, err = filepath.EvalSymlinks(self)
	return h, err
}

func (h *systemdHost) rights() error {
	if !h.user && os.Geteuid() != 0 {
		return errors.New("only root may change the system's service: use sudo, or --user for your own service")
	}
	return nil
}

// installation writes the units, unless a package has installed them, and starts the
// service that they describe.
func (h *systemdHost) installation() ([]step, error) {
	var steps []step
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
	steps = append(steps,
		h.systemctl("daemon-reload").unless(func(changed bool) bool { return !changed && !h.isStale() }),
		h.systemctl(append([]string{"enable"}, bothUnits...)...).unless(func(bool) bool { return h.are("is-enabled") }),
		h.systemctl("restart", "ckptsidecar.service").unless(func(changed bool) bool {
			return !changed && !h.runsRemoved() || !h.are("is-active")
		}),
		h.systemctl(append([]string{"start"}, bothUnits...)...).unless(func(bool) bool { return h.are("is-active") }),
	)
	if me, err := user.Current(); h.user && err == nil && !isThere("/var/lib/systemd/linger/"+me.Username) {
		hint := step{say: "it ends when you log out; to keep it: loginctl enable-linger"}
		steps = append(steps, hint.unless(func(changed bool) bool { return !changed }))
	}
	return steps, nil
}

// removal removes what installation created, and nothing that belongs to a package.
func (h *systemdHost) removal() ([]step, error) {
	steps := []step{
		h.systemctl(append([]string{"disable", "--now"}, bothUnits...)...).unless(func(bool) bool {
			return !isThere(filepath.Join(h.units, "ckptsidecar.service")) && h.shipped == ""
		}),
	}
	if h.shipped != "" {
		return append(steps, step{say: "left: " + h.shipped + ", which belongs to a package: remove that package to remove it"}), nil
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
	if dir := filepath.Dir(daemon.Default(true, noEnvironment).Socket); !h.user { // systemd leaves it
		steps = append(steps, removeStep(dir).unless(func(bool) bool { return !isThere(dir) || !isEmptyBut(dir, nil) }))
	}
	return append(steps, h.systemctl("daemon-reload").unless(func(changed bool) bool { return !changed })), nil
}

func (h *systemdHost) kept() []string {
	if h.user {
		return []string{"your checkpoints and settings"}
	}
	list := []string{}
	for _, what := range [][2]string{{daemonFolder, "the checkpoints"}, {"/etc/ckptsidecar", "the settings"}} {
		if isThere(what[0]) {
			list = append(list, what[0]+", "+what[1])
		}
	}
	return append(list, "the user ckptsidecar and its groups")
}

func noEnvironment(string) string { return "" }

func (h *systemdHost) control(verb string) ([]step, error) {
	if h.shipped == "" && !isThere(filepath.Join(h.units, "ckptsidecar.service")) {
		return nil, &cli.ExitError{Code: cli.ExitNotFound, Message: errNotInstalled.Error()}
	}
	if verb == "restart" { // clients that call in the meantime wait in the socket
		return []step{h.systemctl("restart", "ckptsidecar.service")}, nil
	}
	return []step{h.systemctl(append([]string{verb}, bothUnits...)...)}, nil
}
