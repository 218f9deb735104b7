package ledger

import (
	"slices"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// AuditForeign records that an administrator accesses what belongs to another owner. Each call
// makes a row that is on disk before the reply. Reads that may be repeated often use AuditRead.
func (s *Core) AuditForeign(sc ckpt.Scope, action, agent, subject string) {
	if sc.Foreign() {
		s.AuditForeignOf(sc, action, sc.Target, agent, subject)
	}
}

// AuditForeignOf is AuditForeign if the owner is known by other means than by name.
func (s *Core) AuditForeignOf(sc ckpt.Scope, action, owner, agent, subject string) {
	s.Record(foreignEntry(sc, action, owner, agent, subject))
}

func foreignEntry(sc ckpt.Scope, action, owner, agent, subject string) AuditEntry {
	e := Entry(sc, "admin_"+action, agent)
	e.Owner, e.Subject = owner, subject
	return e
}

// AuditRead records that an administrator reads what belongs to another owner. The first read of a
// call and an agent has a row that is on disk before the reply. Further reads of the same within a
// minute after a row are only counted. The next row of that call and agent has the count; it is
// written once a minute while there is something to count.
func (s *Core) AuditRead(sc ckpt.Scope, action, agent, subject string) {
	if sc.Foreign() {
		s.AuditReadOf(sc, action, sc.Target, agent, subject)
	}
}

// ReadsMinute is how long reads are counted before they get a row.
const ReadsMinute = time.Minute

const (
	maxReadKeys     = 4096 // calls and agents whose reads are counted; further ones have a row each
	maxReadSubjects = 50   // the most subjects that a row names
)

// foreignReads are the reads by administrators that have no row of their own.
type foreignReads struct {
	mu      sync.Mutex
	of      map[readKey]*readCount
	flushed time.Time
}

// readKey is the key by which reads are counted.
type readKey struct{ action, who, owner, agent string }

// readCount counts the reads since the last row.
type readCount struct {
	at       time.Time     // of the last row
	onDisk   chan struct{} // closed when that row is on disk, or could not be written
	reads    int64
	since    time.Time // the time of the first read that is counted
	pid      int
	subjects []string
	more     int64 // reads whose subjects did not fit
}

// AuditReadOf is AuditRead if the owner is known by other means than by name.
func (s *Core) AuditReadOf(sc ckpt.Scope, action, owner, agent, subject string) {
	e := foreignEntry(sc, action, owner, agent, subject)
	row, wait := s.foreign.read(&e, s.Opt.Now())
	if row == nil {
		<-wait
		return
	}
	s.Record(e)
	close(row)
}

// read counts a read, and returns what the caller must wait for before it answers the read. If row
// is not nil, the read has a row of its own: the caller must close row when it has written that
// row. The entry then has the count of the reads before.
func (f *foreignReads) read(e *AuditEntry, now time.Time) (row, wait chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[readKey]*readCount{}
	}
	key := readKey{e.Action, e.Who, e.Owner, e.Agent}
	c := f.of[key]
	if c != nil && !now.Before(c.at) && now.Sub(c.at) < ReadsMinute {
		c.count(e, now)
		return nil, c.onDisk
	}
	if c == nil {
		if len(f.of) >= maxReadKeys {
			return make(chan struct{}), nil
		}
		if len(f.of) == 0 {
			f.flushed = now
		}
		c = &readCount{}
		f.of[key] = c
	}
	e.Detail = c.detail(1)
	row = make(chan struct{})
	*c = readCount{at: now, onDisk: row}
	return row, row
}

func (c *readCount) count(e *AuditEntry, now time.Time) {
	if c.reads == 0 {
		c.since, c.pid = now, e.PID
	}
	c.reads++
	switch {
	case e.Subject == "" || slices.Contains(c.subjects, e.Subject):
	case len(c.subjects) < maxReadSubjects:
		c.subjects = append(c.subjects, e.Subject)
	default:
		c.more++
	}
}

// detail says how many reads a row stands for: the counted ones, and own for the row itself. A row
// without a detail stands for one read.
func (c *readCount) detail(own int64) map[string]any {
	if c.reads == 0 {
		return nil
	}
	d := map[string]any{"reads": c.reads + own, "since": ckpt.At(c.since)}
	if len(c.subjects) > 0 {
		d["subjects"] = c.subjects
	}
	if c.more > 0 {
		d["reads_of_more_subjects"] = c.more
	}
	return d
}

// take returns the rows of the counted reads, and a channel to close when they are written. It
// forgets calls and agents without reads for a minute.
func (f *foreignReads) take(now time.Time, all bool) (entries []AuditEntry, written chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.of) == 0 || !all && !now.Before(f.flushed) && now.Sub(f.flushed) < ReadsMinute {
		return nil, nil
	}
	f.flushed, written = now, make(chan struct{})
	for key, c := range f.of {
		if c.reads == 0 {
			if now.Before(c.at) || now.Sub(c.at) >= ReadsMinute {
				delete(f.of, key)
			}
			continue
		}
		entries = append(entries, AuditEntry{Who: key.who, PID: c.pid, Action: key.action, Owner: key.owner, Agent: key.agent,
			Outcome: OutcomeDone, Detail: c.detail(0)})
		*c = readCount{at: now, onDisk: written}
	}
	return entries, written
}

// recordReads writes the rows of the counted reads: once a minute, and at the stop, with all set.
func (s *Core) recordReads(all bool) {
	entries, written := s.foreign.take(s.Opt.Now(), all)
	if written != nil {
		defer close(written)
	}
	if len(entries) == 0 {
		return
	}
	err := s.Submit(&Op{Owner: Daemon, Claim: sqlite.GoesOn, Do: func(tx *Tx) error {
		for _, e := range entries {
			if err := tx.Audit(e); err != nil {
				return err
			}
		}
		return nil
	}})
	if err != nil {
		s.Log.Error("the counts of the reads of administrators could not be written", "rows", len(entries), "error", err)
	}
}

// Record writes an audit row in a transaction of its own.
func (s *Core) Record(e AuditEntry) {
	if e.Outcome != OutcomeDone && !s.recordable(&e) {
		return
	}
	err := s.Submit(&Op{Owner: e.Who, Claim: sqlite.GoesOn, Do: func(tx *Tx) error {
		tx.Touches()
		return tx.Audit(e)
	}})
	if err != nil {
		s.Log.Error("an audit row could not be written", "action", e.Action, "who", e.Who, "error", err)
	}
}
