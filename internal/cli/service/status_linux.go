package service

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Status asks systemd about both units.
func (h *systemdHost) Status(ctx context.Context) (*Status, error) {
	service, err := h.show(ctx, "ckptsidecar.service", "LoadState", "ActiveState", "SubState", "MainPID", "StateChangeTimestamp",
		"NRestarts", "Result", "ExecMainStatus", "StatusText", "UnitFileState")
	if err != nil {
		return nil, err
	}
	socket, err := h.show(ctx, "ckptsidecar.socket", "ActiveState", "SubState", "Listen", "UnitFileState")
	if err != nil {
		return nil, err
	}
	s := &Status{
		Installed: service["LoadState"] != "not-found", Scope: "system", Manager: "systemd",
		State: service["ActiveState"] + " (" + service["SubState"] + ")", Running: service["ActiveState"] == "active",
		Enabled: strings.HasPrefix(socket["UnitFileState"], "enabled") || strings.HasPrefix(service["UnitFileState"], "enabled"),
		Since:   service["StateChangeTimestamp"], Status: service["StatusText"],
		Socket: socket["ActiveState"] + " (" + socket["SubState"] + ") " + strings.TrimSuffix(socket["Listen"], " (Stream)"),
		Log:    "journalctl -u ckptsidecar",
	}
	s.PID, _ = strconv.Atoi(service["MainPID"])
	s.Restarts, _ = strconv.Atoi(service["NRestarts"])
	if h.user {
		s.Scope, s.Log = "user", "journalctl --user -u ckptsidecar"
	}
	if result := service["Result"]; result != "success" {
		s.Result = result
		if code := service["ExecMainStatus"]; code != "0" {
			s.Result = fmt.Sprintf("%s, %s", result, endText(code))
		}
	}
	if s.Installed {
		s.Files, err = h.fileState()
	}
	return s, err
}

// endText describes what an exit code of the daemon requires.
func endText(code string) string {
	meaning := map[string]string{
		"2": "the command line in the unit is wrong", "4": "another daemon has the database",
		"74": "it stopped itself, because the data on disk was not certain", "78": "a person must fix a problem first: the log names it",
	}[code]
	if meaning == "" {
		return "code " + code
	}
	return "code " + code + ": " + meaning
}

func (h *systemdHost) show(ctx context.Context, unit string, properties ...string) (map[string]string, error) {
	args := h.scoped([]string{"show", unit, "--property=" + strings.Join(properties, ",")})
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("systemctl %s: %s", strings.Join(args, " "), bytes.TrimSpace(out))
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		found[name] = value
	}
	return found, nil
}

// fileState reports whether the installed files are those that this program ships.
func (h *systemdHost) fileState() (string, error) {
	if h.shipped != "" {
		return "from the package, " + h.shipped, nil
	}
	files, err := h.files()
	if err != nil {
		return "", nil //nolint:nilerr // a program in a temporary folder can still tell how the service is doing
	}
	for _, f := range files {
		text, err := os.ReadFile(f.path)
		switch {
		case os.IsNotExist(err):
			return f.path + " is missing: run `ckptsidecar service install`", nil
		case err == nil && !bytes.Equal(text, f.text):
			return f.path + " differs from the one in this program: update it with `ckptsidecar service install`", nil
		}
	}
	return "as shipped, in " + h.units, nil
}
