package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
	"github.com/google/uuid"
)

// Replayed is the result of a replay.
type Replayed struct {
	Sent     int      `json:"sent"`     // stored now, or found to be stored already
	Rejected int      `json:"rejected"` // refused for good, and put aside
	Left     int      `json:"left"`     // they still wait
	Other    int      `json:"other"`    // they belong to another daemon, or come from a newer version
	Why      string   `json:"why"`      // why the first write of those in Left still waits
	Aside    []string `json:"aside"`    // the files that were put aside

	cause error // why the first write of those in Left still waits
}

// replay sends all writes that belong to this daemon.
func (s *spool) replay(ctx context.Context) (Replayed, error) {
	return s.replayWhere(ctx, func(glance) bool { return true })
}

// replayWhere sends the chosen writes in order. If one must wait, the later ones
// of its run wait too.
func (s *spool) replayWhere(ctx context.Context, chosen func(glance) bool) (Replayed, error) {
	b, err := s.look(chosen)
	if err != nil {
		return b.Replayed, err
	}
	err = s.sendAll(ctx, b)
	return b.Replayed, err
}

// backlog is what a look into the folder has found, and what became of it.
type backlog struct {
	dir   string
	files []glance  // in their order
	began time.Time // when the first one was sent
	Replayed
}

// look finds the chosen writes of this daemon. How long that takes does not depend on the daemon.
func (s *spool) look(chosen func(glance) bool) (*backlog, error) {
	b := new(backlog)
	dir, names, err := s.waiting()
	if err == nil {
		b.dir = dir
		b.files, err = s.choose(dir, names, chosen, &b.Replayed)
	}
	return b, err
}

// sendAll sends what a look has found.
func (s *spool) sendAll(ctx context.Context, b *backlog) error {
	if len(b.files) == 0 {
		return nil
	}
	lock, err := takeLock(ctx, b.dir)
	if errors.Is(err, errHeld) {
		return err
	}
	if err == nil { // a folder that cannot be written has no lock
		defer lock.leave()
		sweepTemps(b.dir)
	}
	blocked := map[[3]string]bool{}
	b.began = time.Now()
	for _, f := range b.files {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if lock != nil {
			lock.touch()
		}
		if err := s.replayOne(ctx, b.dir, f, blocked, &b.Replayed); err != nil {
			return err
		}
	}
	return nil
}

// glance is what a client remembers of a waiting file. Therefore it reads the first line of
// each file once, and the body only to send it.
type glance struct {
	name, agent, run, owner, endpoint string
	newer                             bool
	sent                              *atomic.Bool // it was sent, but its file could not be removed
}

// choose returns the chosen files of this daemon, in their order, and the damaged ones.
func (s *spool) choose(dir string, names []string, chosen func(glance) bool, r *Replayed) ([]glance, error) {
	s.mu.Lock()
	known := s.known
	s.mu.Unlock()
	seen := make(map[string]glance, len(names))
	var files []glance
	for _, name := range names {
		g, ok := known[name]
		if !ok {
			head, err := readHeadOf(filepath.Join(dir, name))
			switch {
			case errors.Is(err, fs.ErrNotExist): // another replayer was faster
				continue
			case unreadable(err): // it can be a write of any run, which no other may overtake
				return nil, err
			case errors.Is(err, errNewer):
				g = glance{name: name, newer: true}
			case err != nil: // replayOne puts it aside
				files = append(files, glance{name: name})
				continue
			default:
				g = glance{name: name, agent: head.Agent, run: head.Run, owner: head.owner(), endpoint: head.Endpoint, sent: new(atomic.Bool)}
			}
		}
		seen[name] = g
		switch {
		case g.newer || !s.isOurs(g.endpoint):
			r.Other++
		case chosen(g):
			files = append(files, g)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = seen
	return files, nil
}

func (s *spool) replayOne(ctx context.Context, dir string, g glance, blocked map[[3]string]bool, r *Replayed) error {
	run := [3]string{g.owner, g.agent, g.run}
	if blocked[run] {
		r.Left++
		return nil
	}
	name, path := g.name, filepath.Join(dir, g.name)
	if g.sent != nil && g.sent.Load() {
		_ = os.Remove(path)
		return nil
	}
	head, body, err := readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // another replayer was faster
		return nil
	case unreadable(err):
		return err
	case err != nil:
		return s.putAside(dir, name, ckpt.Errorf(ckpt.CodeCorrupt, "%v", err), r)
	}
	err = s.send(ctx, &client.Request{Method: head.Method,
		Path: head.Path, Query: head.Query, Header: head.Headers, Body: body}, head.CreatedAt)
	switch {
	case err == nil:
		r.Sent++
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) && g.sent != nil {
			g.sent.Store(true)
			s.log().Warn("a spooled write was sent, but its file cannot be removed", "file", path, "error", err)
		}
		return nil
	case passes(err) || ctx.Err() != nil:
		blocked[run] = true
		r.Left++
		if !passes(err) {
			err = ctx.Err()
		}
		if r.cause == nil {
			r.cause, r.Why = err, reason(err)
		}
		return nil
	}
	return s.putAside(dir, name, ckpt.AsError(err), r)
}

// reason returns why a write still waits, for people.
func reason(err error) string {
	var nobody *DialError
	var answer *ckpt.Error
	switch {
	case errors.As(err, &nobody):
		return nobody.Error()
	case errors.As(err, &answer):
		return answer.Message
	case errors.Is(err, context.DeadlineExceeded):
		return "they could not all be sent in time"
	}
	return err.Error()
}

// ofRun chooses the writes of one run.
func (s *spool) ofRun(agent, run string) func(glance) bool {
	return func(g glance) bool { return g.agent == agent && g.run == run && g.owner == s.owner }
}

func (s *spool) putAside(dir, name string, why *ckpt.Error, r *Replayed) error {
	if err := reject(dir, name, why); err != nil {
		return err
	}
	r.Rejected++
	r.Aside = append(r.Aside, name)
	s.log().Error("a spooled write was refused for good and put aside", "file", filepath.Join(dir, rejectedDir, name),
		"code", string(why.Code), "error", why.Message)
	return nil
}

// isOurs reports whether a file belongs to the daemon that this client uses.
func (s *spool) isOurs(endpoint string) bool {
	mine := s.socket
	endpoint = wholeEndpoint(endpoint)
	return endpoint == mine || (endpoint == "" || mine == "") && slices.Contains(client.Usual(), endpoint+mine)
}

// A lock prevents two processes from replaying the same writes. It only saves work:
// replaying twice does no harm.
type lock struct{ path, token string }

var errHeld = errors.New("another program is sending the spooled writes")

const (
	lockName  = "replay.lock"
	lockStale = 2 * time.Minute
	lockPause = 20 * time.Millisecond
)

type lockNote struct {
	PID   int    `json:"pid"`
	Host  string `json:"host"`
	Token string `json:"token"`
}

func takeLock(ctx context.Context, dir string) (*lock, error) {
	l := &lock{filepath.Join(dir, lockName), uuid.NewString()}
	host := lockHost()
	note, err := json.Marshal(lockNote{os.Getpid(), host, l.token})
	if err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			_, err = f.Write(note)
			if err = errors.Join(err, f.Close()); err != nil {
				_ = os.Remove(l.path) // nobody holds it
				return nil, err
			}
			return l, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if l.isStale(host) {
			if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil, errHeld
		case <-time.After(lockPause):
		}
	}
}

// lockHost names where a number names this process: the machine, and on Linux the process namespace too. Containers can have one name
// of a machine, and the numbers of their processes are their own.
func lockHost() string {
	host, _ := os.Hostname()
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return host
	}
	return host + " " + namespace
}

func (l *lock) isStale(host string) bool {
	info, err := os.Stat(l.path)
	if err != nil {
		return false // the holder has just removed it
	}
	if time.Since(info.ModTime()) > lockStale {
		return true
	}
	var note lockNote
	text, err := os.ReadFile(l.path)
	return err == nil && json.Unmarshal(text, &note) == nil && note.Host == host && note.PID > 0 && note.PID != os.Getpid() && osfile.ProcessIsGone(note.PID)
}

func (l *lock) touch() {
	now := time.Now()
	_ = os.Chtimes(l.path, now, now)
}

func (l *lock) leave() {
	var note lockNote
	text, err := os.ReadFile(l.path)
	if err == nil && json.Unmarshal(text, &note) == nil && note.Token == l.token {
		_ = os.Remove(l.path)
	}
}

// lookNow looks for the spooled writes of a run. It returns nil if none wait, or if the folder cannot
// be read, which does not hold the run up. The error is why they must wait longer.
func (s *spool) lookNow(agent, run string) (*backlog, error) {
	key := [2]string{agent, run}
	s.mu.Lock()
	dir, err := s.folder()
	if err == nil {
		err = checkFolder(dir)
	}
	if err == nil {
		err = s.measure(dir)
	}
	empty, failed := s.files == 0 || s.idle[key], s.failed[key]
	s.mu.Unlock()
	if err != nil || empty {
		return nil, nil
	}
	if time.Now().Before(failed.until) {
		return nil, failed.err
	}
	b, err := s.look(s.ofRun(agent, run))
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.fail(key, err)
	}
	return b, nil
}

// clear sends the spooled writes of a run that lookNow has found. It returns how many it has dealt
// with, and the reason if some still wait.
func (s *spool) clear(ctx context.Context, agent, run string, b *backlog) (done int, err error) {
	if b == nil {
		return 0, nil
	}
	key := [2]string{agent, run}
	begun := time.Now()
	err = s.sendAll(ctx, b)
	s.mu.Lock()
	defer s.mu.Unlock()
	done = b.Sent + b.Rejected
	if err = cmp.Or(err, b.cause); err != nil || done > 0 {
		s.measured = time.Time{}
	}
	if err == nil {
		if s.idle == nil {
			s.idle = map[[2]string]bool{}
		}
		s.idle[key] = true
		return done, nil
	}
	// A run rests only if that is up to the daemon. If other runs or the agent itself have used up the time,
	// the next write tries again. Otherwise, a busy folder would grow faster than it can be sent.
	end, limited := ctx.Deadline()
	hadTime := !limited || end.Sub(b.began) >= end.Sub(begun)/2
	canceled := ctx.Err() != nil && !errors.Is(context.Cause(ctx), errSilent)
	if b.Sent == 0 && hadTime && !canceled && !errors.Is(err, errHeld) {
		return done, s.fail(key, err)
	}
	return done, stillWaits(err)
}

// clearNow looks and sends.
func (s *spool) clearNow(ctx context.Context, agent, run string) (done int, err error) {
	b, err := s.lookNow(agent, run)
	if err != nil {
		return 0, err
	}
	return s.clear(ctx, agent, run, b)
}

func stillWaits(why error) error {
	return fmt.Errorf("earlier writes of this run still wait in the spool: %w", why)
}

// fail notes why writes of a run wait, and returns it. It forgets what it has noted before, when its
// time is over. The caller holds s.mu.
func (s *spool) fail(run [2]string, why error) error {
	why = stillWaits(why)
	now := time.Now()
	maps.DeleteFunc(s.failed, func(_ [2]string, f failure) bool { return !now.Before(f.until) })
	if s.failed == nil {
		s.failed = map[[2]string]failure{}
	}
	s.failed[run] = failure{why, now.Add(retryAfter)}
	return why
}

// clearPause is the pause before the start of a run looks again for a daemon that is away.
const clearPause = 50 * time.Millisecond

// clearAtStart sends the spooled writes of a run that starts. It waits for the daemon until
// ctx ends.
func (s *spool) clearAtStart(ctx context.Context, agent, run string) (done int, err error) {
	for {
		s.mu.Lock()
		delete(s.failed, [2]string{agent, run})
		s.mu.Unlock()
		n, err := s.clearNow(ctx, agent, run)
		done += n
		var nobody *DialError
		if err == nil || errors.As(err, &nobody) && nobody.Stranger() {
			return done, err
		}
		select {
		case <-ctx.Done():
			return done, err
		case <-time.After(clearPause):
		}
	}
}
