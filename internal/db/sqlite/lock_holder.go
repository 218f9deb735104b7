package sqlite

import (
	"fmt"
	"os"
)

// holder is a process that holds a lock of the database.
type holder struct {
	pid  int
	name string // its program's name, "" if that is not known
}

// ours says that this process holds the lock.
func (h holder) ours() bool { return h.pid == os.Getpid() }

func (h holder) String() string {
	switch {
	case h.pid == 0:
		return "another program"
	case h.name == "":
		return fmt.Sprintf("another program (pid %d)", h.pid)
	}
	return fmt.Sprintf("another program, %s (pid %d),", h.name, h.pid)
}
