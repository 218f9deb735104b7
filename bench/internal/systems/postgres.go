package systems

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
)

// postgres has the settings that initdb writes: fsync and synchronous_commit are on. PostgreSQL
// refuses to run as root, so in that case it runs as another user.
type postgres struct {
	w        *Workshop
	bin      string
	template string // a new cluster, copied at each start
	user     *host.User
	version  string
}

func (s *postgres) Name() string  { return "postgres" }
func (s *postgres) Title() string { return "PostgreSQL, synchronous_commit on, a commit each" }

func (s *postgres) Prepare(ctx context.Context, w *Workshop) error {
	s.w = w
	path, err := w.program(ctx, "postgres", "postgresql", "/usr/lib/postgresql/*/bin/postgres", "/usr/pgsql-*/bin/postgres")
	if err != nil {
		return err
	}
	s.bin, s.version = filepath.Dir(path), w.version(ctx, path, "--version")
	if s.user, err = other(); err != nil {
		return err
	}
	s.template = filepath.Join(w.Scratch, "postgres")
	if err := s.folder(s.template); err != nil {
		return err
	}
	return s.run(ctx, filepath.Join(s.bin, "initdb"), "-D", s.template, "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
}

// other returns the user that runs PostgreSQL if this process is root.
func other() (*host.User, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is neither a user postgres nor nobody: %w", err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return &host.User{UID: uid, GID: gid}, errors.Join(err1, err2)
}

// folder makes a folder that belongs to the user of the server.
func (s *postgres) folder(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil || s.user == nil {
		return err
	}
	return os.Chown(path, s.user.UID, s.user.GID)
}

func (s *postgres) run(ctx context.Context, path string, args ...string) error {
	return host.Run(ctx, host.Spec{Name: filepath.Base(path), Path: path, Args: args, Env: s.w.env, Dir: "/", User: s.user})
}

func (s *postgres) Start(ctx context.Context, dir string) (*Instance, error) {
	if err := s.folder(dir); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := s.run(ctx, "/bin/cp", "-a", s.template, data); err != nil {
		return nil, err
	}
	// The write-ahead log is left out: PostgreSQL keeps it for a while and then reuses it.
	tables := filepath.Join(data, "base")
	empty, err := host.DiskUse(tables)
	if err != nil {
		return nil, err
	}
	p, err := host.Start(host.Spec{
		Name: "postgres", Path: filepath.Join(s.bin, "postgres"), Env: s.w.env, Dir: "/", User: s.user,
		Args: []string{"-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "dynamic_shared_memory_type=mmap"},
	})
	if err != nil {
		return nil, err
	}
	i, err := s.w.attach(ctx, &server{p, syscall.SIGINT}, s.Name(), "postgres://bench@/postgres?host="+dir, tables)
	if err == nil {
		i.Version, i.empty = s.version, empty
	}
	return i, err
}
