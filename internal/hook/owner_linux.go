package hook

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// processOf returns the name of a process and its parent.
func processOf(pid int) (name string, parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	// The text is: pid (name) state parent …, and the name can contain anything.
	begin, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
	if begin < 0 || end < begin {
		return "", 0, false
	}
	rest := strings.Fields(string(text)[end+1:])
	if len(rest) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(rest[1])
	return string(text)[begin+1 : end], parent, err == nil
}
