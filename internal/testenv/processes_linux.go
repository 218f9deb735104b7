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

// processesOf ends and names every process, other than this one, that carries
// the marker of this home. A process that is about to end gets a moment.
func processesOf(home string) []string {
	var found []string
	for range 20 {
		if found = running(home, false); len(found) == 0 {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return running(home, true)
}

func running(home string, end bool) []string {
	marker := []byte(Marker + "=" + home + "\x00")
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
