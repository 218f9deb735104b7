package systems

import "context"

// System is one of those that are compared.
type System interface {
	// Name is the word by which bars and options know it.
	Name() string

	// Title says for people what it is and how it is set.
	Title() string

	// Prepare finds what it needs, or installs it into the workshop. An error
	// says why it is left out.
	Prepare(ctx context.Context, w *Workshop) error

	// Start starts it in a folder that is empty.
	Start(ctx context.Context, dir string) (*Instance, error)
}

// Ours is the name of the product among the systems.
const Ours = "ours"

// All is every system, in the order of the report.
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
