package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
	"github.com/google/uuid"
)

const (
	measureEvery = time.Second
	version      = "go/0.1.0"
)

// spool is a folder in which writes wait for a daemon.
type spool struct {
	dir    string // "" for the default folder
	most   int64
	socket string                                                  // the endpoint that the user has chosen, "" if none
	owner  string                                                  // whose agents; "" for the user's own
	send   func(context.Context, *client.Request, ckpt.Time) error // sends a write that was made at the given time
	log    func() *slog.Logger

	mu       sync.Mutex
	runs     map[[2]string]*runLock
	last     uint64 // the greatest order number that was seen or assigned
	files    int
	bytes    int64
	measured time.Time
	known    map[string]glance     // the waiting files that were looked at, by name; it is replaced, never changed
	failed   map[[2]string]failure // why writes of a run wait
	idle     map[[2]string]bool    // the runs of which nothing waits, since the folder was measured
}

// failure is why the writes of a run could not be sent. Until its time is over, nothing of that run
// is sent.
type failure struct {
	err   error
	until time.Time
}

// runLock keeps the writes of one run in order. It exists as long as a caller holds it or
// waits for it.
type runLock struct {
	sync.Mutex
	users int
}

// lock waits until no other write of the run is in progress. unlock lets the
// next one begin.
func (s *spool) lock(agent, run string) (unlock func()) {
	key := [2]string{agent, run}
	s.mu.Lock()
	l := s.runs[key]
	if l == nil {
		if s.runs == nil {
			s.runs = map[[2]string]*runLock{}
		}
		l = new(runLock)
		s.runs[key] = l
	}
	l.users++
	s.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(s.runs, key)
		}
	}
}

func (s *spool) folder() (string, error) {
	if s.dir != "" {
		return s.dir, nil
	}
	return SpoolDir()
}

// add appends a write to the spool.
func (s *spool) add(r *client.Request) error {
	dir, err := s.folder()
	if err != nil {
		return err
	}
	if err := openFolder(dir); err != nil {
		return err
	}
	content, err := s.content(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.measure(dir); err != nil {
		return err
	}
	if s.bytes+int64(len(content)) > s.most {
		return fmt.Errorf("%s holds %d of at most %d bytes: start the daemon, or raise the limit", dir, s.bytes, s.most)
	}
	s.last = max(s.last+1, uint64(time.Now().UnixNano()))
	name := fmt.Sprintf("%016x-%s%s", s.last, idOf(r), spoolSuffix)
	if err := osfile.Write(filepath.Join(dir, name), content, 0o600); err != nil {
		return err
	}
	s.files++
	s.bytes += int64(len(content))
	delete(s.idle, [2]string{r.Agent, r.Run})
	return nil
}

func (s *spool) content(r *client.Request) ([]byte, error) {
	sum := sha256.Sum256(r.Body)
	head, err := json.Marshal(spooled{Version: spoolVersion, Method: r.Method, Path: r.Path, Query: r.Query, Headers: r.Header,
		Agent: r.Agent, Run: r.Run,
		Endpoint: s.socket, CreatedAt: ckpt.At(time.Now()), Size: int64(len(r.Body)), SHA256: hex.EncodeToString(sum[:]), Client: version})
	if err != nil {
		return nil, err
	}
	return append(append(head, '\n'), r.Body...), nil
}

// idOf returns the id of a save, or the key of another write. If neither is a valid id,
// it makes a new id.
func idOf(r *client.Request) string {
	last := r.Path[strings.LastIndexByte(r.Path, '/')+1:]
	for _, candidate := range [...]string{last, r.Header["Idempotency-Key"]} {
		if ckpt.CheckID(candidate) == nil {
			return candidate
		}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.NewString()
	}
	return id.String()
}

// lookAgain makes the next write look into the folder, however short ago the last look was.
func (s *spool) lookAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measured = time.Time{}
}

// measure counts the files and their bytes, at most once a second. The caller holds s.mu.
func (s *spool) measure(dir string) error {
	if time.Since(s.measured) < measureEvery {
		return nil
	}
	s.files, s.bytes = 0, 0
	clear(s.idle)
	for _, folder := range [...]string{dir, filepath.Join(dir, rejectedDir)} {
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, entry := range entries {
			if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
				s.bytes += info.Size()
			}
			if order, ok := orderOf(entry.Name()); ok && folder == dir {
				s.files++
				s.last = max(s.last, order)
			}
		}
	}
	s.measured = time.Now()
	return nil
}

// orderOf reads the order number from the name of a waiting file.
func orderOf(name string) (uint64, bool) {
	if !strings.HasSuffix(name, spoolSuffix) || len(name) < 17 || name[16] != '-' {
		return 0, false
	}
	order, err := strconv.ParseUint(name[:16], 16, 64)
	return order, err == nil
}

// waiting lists the names of the waiting files, in their order.
func (s *spool) waiting() (dir string, names []string, err error) {
	if dir, err = s.folder(); err != nil {
		return "", nil, err
	}
	if err := checkFolder(dir); err != nil {
		return "", nil, err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dir, nil, nil
	}
	for _, entry := range entries {
		if _, ok := orderOf(entry.Name()); ok {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	return dir, names, err
}

const retryAfter = time.Second
