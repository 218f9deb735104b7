package ledger

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// Options are the settings of a store. Path and Retention are required. For the other fields, the
// zero value has a default.
type Options struct {
	Path          string                                                  // of the database file
	Mode          fs.FileMode                                             // of the files made; 0600, or 0640 if auditors' group reads
	Retention     retention.Func                                          // decides which checkpoints stay; required
	Resume        resume.Resumer                                          // how a dead run continues; Resume needs it
	Ask           func(*ckpt.Plan) (question, reason string)              // the words of a prompt
	Fits          func(ctx context.Context, schema, data ckpt.JSON) error // checks a schema, and data against it if given
	Secrets       blob.Scan                                               // looks for secrets in states; nil does not look
	Drift         observer.Watcher                                        // watches runs for drift; nil does not
	Processes     liveness.Processes                                      // looks at processes; nil knows none
	Now           func() time.Time                                        // the wall clock
	Trusted       func() time.Time                                        // the clock guard's time, zero while it distrusts the clock; nil trusts Now
	MaxBytes      int64                                                   // of the database; 0 for no limit
	MaxOwnerBytes int64                                                   // of all that one owner has stored; 0 for no limit
	MaxAgentFiles int64                                                   // of the contents of an agent's files, as stored; 0 for no limit
	FreeFloor     int64                                                   // free space below which only owners with little may store more; 0 for none
	OwnerMinimum  int64                                                   // bytes that an owner may have even below the floor
	WriteTimeout  time.Duration                                           // how long a write may wait for the database; 10 s
	MaxWaiting    int                                                     // writes that may wait before busy is returned; 4096
	MaxWaitBytes  int64                                                   // and their bytes; 512 MiB
	Readers       int                                                     // read connections; 4
	Watches       int                                                     // runs watched at the same time; 1000. Others are read at each write
	ReserveBytes  int64                                                   // disk space that is kept for deletes; 4 MiB, below 0 for none
	BeatsKept     time.Duration                                           // how long a heartbeat may stay in memory; 30 s, below 0 for not at all
	LiveBytes     int64                                                   // memory for runs' newest states, for deltas; 64 MiB, below 0 for none
	Log           *slog.Logger
	Version       string

	Lock *os.File // already held, set by RestoreBackup, which alone may open what an interrupted restore has left
}

func (o *Options) SetDefaults() {
	setDefault(&o.Mode, 0o600)
	setDefault(&o.WriteTimeout, 10*time.Second)
	setDefault(&o.LiveBytes, 64<<20)
	setDefault(&o.Watches, 1000)
	setDefault(&o.BeatsKept, 30*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Trusted == nil {
		o.Trusted = o.Now
	}
	if o.Ask == nil {
		o.Ask = plainQuestion
	}
	if o.Processes == nil {
		o.Processes = noProcesses{}
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

// noProcesses has no information about processes.
type noProcesses struct{}

func (noProcesses) Owner(int) string { return "" }

func (noProcesses) Named(_, pid int) liveness.Process { return liveness.Process{PID: pid} }

func (noProcesses) Here(int, int) int { return 0 }

func (noProcesses) Identify(pid int) liveness.Process { return liveness.Process{PID: pid} }

func (noProcesses) Alive(liveness.Process) liveness.State { return liveness.Unknown }

func (noProcesses) Stranger(int, liveness.Process, time.Time) bool { return false }

// plainQuestion is the question if Options.Ask is not set.
func plainQuestion(plan *ckpt.Plan) (question, reason string) {
	return fmt.Sprintf("Run %s of agent %s stopped. Resume it, re-initialize it (begin with nothing), or abandon it?",
		plan.Run, plan.Agent), strings.Join(plan.Reasons, " ")
}
