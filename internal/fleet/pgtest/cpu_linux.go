package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ProcessorTime returns how long the processors have worked for this server and its standbys.
// It measures costs even if other programs use the machine.
func (s *Server) ProcessorTime() (total time.Duration) {
	s.t.Helper()
	root := filepath.Dir(s.folder)
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, process := range all {
		folder, err := os.Readlink(process + "/cwd")
		if err != nil || !strings.HasPrefix(folder, root+"/") {
			continue
		}
		if stat, err := os.ReadFile(process + "/stat"); err == nil {
			total += processorTime(s, string(stat))
		}
	}
	return total
}

// processorTime adds utime, stime, cutime and cstime, the fields 14 to 17 of /proc/PID/stat.
func processorTime(s *Server, stat string) (total time.Duration) {
	const perTick = time.Second / 100 // USER_HZ of Linux
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	for _, text := range fields[11:15] {
		ticks, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			s.t.Fatal(fmt.Errorf("/proc/PID/stat has %q: %w", stat, err))
		}
		total += time.Duration(ticks) * perTick
	}
	return total
}
