package systems

import (
	"context"
	"path/filepath"
	"syscall"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
)

// redisServer acknowledges a SET after the append-only file is flushed. Rewriting the file is off:
// it would only take time from Redis.
type redisServer struct {
	w       *Workshop
	path    string
	version string
}

func (s *redisServer) Name() string  { return "redis" }
func (s *redisServer) Title() string { return "Redis, appendfsync always, SET" }

func (s *redisServer) Prepare(ctx context.Context, w *Workshop) (err error) {
	s.w = w
	if s.path, err = w.program(ctx, "redis-server", "redis-server"); err == nil {
		s.version = w.version(ctx, s.path, "--version")
	}
	return err
}

func (s *redisServer) Start(ctx context.Context, dir string) (*Instance, error) {
	socket := filepath.Join(dir, "s")
	p, err := host.Start(host.Spec{Name: "redis-server", Path: s.path, Env: s.w.env, Dir: dir, Args: []string{
		"--port", "0", "--unixsocket", socket, "--dir", dir, "--daemonize", "no", "--save", "",
		"--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0",
	}})
	if err != nil {
		return nil, err
	}
	i, err := s.w.attach(ctx, &server{p, syscall.SIGTERM}, s.Name(), socket, dir)
	if err == nil {
		i.Version = s.version
	}
	return i, err
}
