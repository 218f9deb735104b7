package drivers

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
)

// inRedis sets a key: one for each agent, or one for each state of a history.
type inRedis struct{ db *redis.Client }

func openRedis(ctx context.Context, socket string) (load.Store, error) {
	db := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, PoolSize: 64})
	return &inRedis{db}, db.Ping(ctx).Err()
}

func (s *inRedis) Version() string { return "" }
func (s *inRedis) Close() error    { return s.db.Close() }

func (s *inRedis) Client(ctx context.Context, id load.Client, body func(load.Save) error) error {
	return body(func(seq int, state []byte) error {
		key := id.Name
		if id.History {
			key += ":" + strconv.Itoa(seq)
		}
		return s.db.Set(ctx, key, state, 0).Err()
	})
}
