package testenv

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// processesWith ends and names every process, other than this one, whose environment
// has a variable, given as NAME=value. A process that is about to end gets a moment.
func processesWith(variable string) []string {
	var found []string
	for range 20 {
		if found = running(variable, false); len(found) == 0 {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return running(variable, true)
}

func running(variable string, end bool) []string {
	marker := []byte(variable + "\x00")
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	var found []string
	for _, path := range paths {
		dir := filepath.Dir(path)
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(environ, marker) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found = append(found, fmt.Sprintf("%d %s", pid, bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
		if end {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return found
}
