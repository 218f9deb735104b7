package sqlite

import (
	"io/fs"
	"log/slog"
	"os"
	"time"
)

// Options are the settings of an engine. Path, Schema and Hooks are required. For the other fields,
// the zero value has a default.
type Options struct {
	Path         string           // of the database file
	Mode         fs.FileMode      // of the files that are made; 0600
	Schema       Schema           // the schema that a new file gets and that an older file is migrated to
	Hooks        Hooks            // what the store does inside transactions
	Now          func() time.Time // the wall clock
	MaxBytes     int64            // of the database; 0 for no limit
	WriteTimeout time.Duration    // how long a write may wait for the database; 10 s
	MaxWaiting   int              // writes that may wait before the engine returns busy; 4096
	MaxWaitBytes int64            // and their bytes; 512 MiB
	Readers      int              // read connections; 4
	ReserveBytes int64            // disk space that is kept for deletes; 4 MiB, below 0 for none
	Log          *slog.Logger

	Lock      *os.File // a lock that is already held, set by Restore, which releases it
	Restoring bool     // set by Restore, which alone may open what an interrupted restore has left
}

func (o *Options) setDefaults() {
	setDefault(&o.Mode, 0o600)
	setDefault(&o.WriteTimeout, 10*time.Second)
	setDefault(&o.MaxWaiting, 4096)
	setDefault(&o.MaxWaitBytes, 512<<20)
	setDefault(&o.Readers, 4)
	setDefault(&o.ReserveBytes, 4<<20)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
