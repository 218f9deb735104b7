// Package ours is the client of the product among the drivers. It is a separate package, so that a
// developer who changes the product's client can check this driver without the libraries of all the
// other systems.
//
// This package may import internal/load, and of the product the root package and
// internal/ipc/client.
package ours

import (
	"context"
	"fmt"
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// store is the product over its socket, with its own client and its defaults. Only histories have a
// policy, because the default policy keeps three checkpoints.
type store struct {
	socket  string
	version string
	kept    sync.Map // agents whose policy keeps all checkpoints
}

// Open checks that the daemon at a socket responds, and returns its store.
func Open(ctx context.Context, socket string) (load.Store, error) {
	c := client.Client{Socket: socket}
	defer c.Close()
	v, err := c.Version(ctx)
	if err != nil {
		return nil, err
	}
	return &store{socket: socket, version: v.Version}, nil
}

// Version returns the daemon's version.
func (s *store) Version() string { return s.version }

// Close does nothing: each client closes its own connection.
func (s *store) Close() error { return nil }

// Client saves as a separate agent, over a separate connection.
func (s *store) Client(ctx context.Context, id load.Client, body func(load.Save) error) error {
	c := client.Client{Socket: s.socket}
	defer c.Close()
	if err := s.keepAll(ctx, &c, id); err != nil {
		return err
	}
	return body(func(_ int, state []byte) error {
		saved, err := c.Save(ctx, &ckpt.SaveRequest{Agent: id.Name, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state})
		if err == nil && saved.Size != int64(len(state)) {
			return fmt.Errorf("%d bytes were saved, not %d", saved.Size, len(state))
		}
		return err
	})
}

func (s *store) keepAll(ctx context.Context, c *client.Client, id load.Client) error {
	if _, done := s.kept.LoadOrStore(id.Name, true); done || !id.History {
		return nil
	}
	policy := ckpt.DefaultPolicy()
	policy.RoutineKeep = 0
	_, err := c.SetPolicy(ctx, id.Name, policy)
	return err
}
