package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lookHardening asks the kernel for the rights of the daemon. An attacker who took over
// the daemon would have these rights.
func lookHardening(_ context.Context, p *patient) []finding {
	if p.status == nil {
		return []finding{skipped("no daemon answers")}
	}
	is, err := processStatus(p.status.PID)
	if err != nil {
		return []finding{skipped("%v", err)}
	}
	user := strings.Fields(is["Uid"])[0]
	if user != "0" && user == fmt.Sprint(os.Getuid()) {
		return []finding{ok("the daemon is your own and has your rights")}
	}
	const do = "run it as a service: `ckptsidecar service install`"
	var weak []string
	for _, w := range []struct {
		is   bool
		what string
	}{
		{user == "0", "it runs as root"},
		{strings.Trim(is["CapEff"], "0") != "", "it has capabilities (" + is["CapEff"] + ")"},
		{is["NoNewPrivs"] != "1", "it may gain rights"},
		{is["Seccomp"] != "2", "it may make any system call"},
	} {
		if w.is {
			weak = append(weak, w.what)
		}
	}
	if len(weak) > 0 {
		return []finding{warn(do, "%s", strings.Join(weak, ", "))}
	}
	return []finding{ok("uid %s, no capabilities, no new rights, system calls filtered", user)}
}

// processStatus returns the status of a process in /proc.
func processStatus(pid int) (map[string]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, fmt.Errorf("process %d is not visible from here", pid)
	}
	is := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		is[name] = strings.TrimSpace(value)
	}
	if is["Uid"] == "" {
		return nil, errors.New("/proc does not show the owner of the process")
	}
	return is, nil
}

// sameDisk reports whether two files are on one file system.
func sameDisk(a, b string) bool {
	var one, two unix.Stat_t
	return unix.Stat(a, &one) == nil && unix.Stat(filepath.Dir(b), &two) == nil && one.Dev == two.Dev
}

// clockUntrusted returns why the clock can be wrong. It is "" if a service keeps the
// clock right.
func clockUntrusted() string {
	const notSynchronized = 5 // TIME_ERROR
	var state unix.Timex
	if now, err := unix.Adjtimex(&state); err != nil || now != notSynchronized {
		return ""
	}
	return "no service keeps the clock synchronized"
}
