package systems

import (
	"context"
	"os"
	"path/filepath"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
)

// ours is the product: its program as a daemon, with its defaults.
type ours struct{ w *Workshop }

func (s *ours) Name() string  { return Ours }
func (s *ours) Title() string { return "ckptsidecar serve, over its Unix socket" }

func (s *ours) Prepare(_ context.Context, w *Workshop) error {
	s.w = w
	_, err := os.Stat(w.Server)
	return err
}

func (s *ours) Start(ctx context.Context, dir string) (*Instance, error) {
	config := filepath.Join(dir, "config.toml") // so that the user's own settings do not count
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	socket := filepath.Join(dir, "s")
	p, err := host.Start(host.Spec{Name: "ckptsidecar serve", Path: s.w.Server, Pipe: true, Args: []string{
		"serve", "--while-stdin", "--config", config, "--db", filepath.Join(data, "ckpt.db"), "--socket", socket,
	}})
	if err != nil {
		return nil, err
	}
	i, err := s.w.attach(ctx, &server{p, nil}, s.Name(), socket, data)
	if err == nil {
		i.reused = []string{"ckpt.db-wal", "ckpt.db-shm", "ckpt.db-reserve"}
	}
	return i, err
}

// attach starts the driver of a server that was just started, and stops the server if that fails.
func (w *Workshop) attach(ctx context.Context, srv *server, name, address, data string) (*Instance, error) {
	d, err := w.drive(ctx, name, address)
	if err != nil {
		_ = srv.Stop(srv.signal, stopPatience)
		return nil, err
	}
	return &Instance{driver: d, server: srv, dir: data, Version: d.version}, nil
}
