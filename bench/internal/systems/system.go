package systems

import "context"

// System is one of the compared systems.
type System interface {
	// Name returns the name that bars and options use for it.
	Name() string

	// Title describes for people what it is and how it is set.
	Title() string

	// Prepare finds what the system needs, or installs it into the workshop. An error says why the
	// system is left out.
	Prepare(ctx context.Context, w *Workshop) error

	// Start starts the system in an empty folder.
	Start(ctx context.Context, dir string) (*Instance, error)
}

// Ours is the name of the product among the systems.
const Ours = "ours"

// All returns every system, in the order of the report.
func All() []System {
	return []System{
		&ours{},
		&embedded{name: "append", title: "append to one log + fdatasync (the disk's limit)"},
		&redisServer{},
		&postgres{},
		&etcd{},
		&langGraph{},
		&embedded{name: "dbos", title: "DBOS Go on SQLite, synchronous=FULL, a step"},
		&embedded{name: "file", title: "file: tmp, fsync, rename, fsync folder"},
	}
}
