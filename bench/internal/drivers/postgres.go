package drivers

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
)

// inPostgres inserts a row for each state, with a prepared statement that is a separate
// transaction.
type inPostgres struct{ pool *pgxpool.Pool }

func openPostgres(ctx context.Context, url string) (load.Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 64
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	s := &inPostgres{pool}
	if err := s.prepare(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

func (s *inPostgres) prepare(ctx context.Context) error {
	for setting, wanted := range map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"} {
		var is string
		if err := s.pool.QueryRow(ctx, "SHOW "+setting).Scan(&is); err != nil {
			return err
		}
		if is != wanted {
			return fmt.Errorf("%s is %s, not %s", setting, is, wanted)
		}
	}
	_, err := s.pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS checkpoints (
		agent text NOT NULL, seq bigint NOT NULL, state bytea NOT NULL, PRIMARY KEY (agent, seq))`)
	return err
}

func (s *inPostgres) Version() string { return "" }

func (s *inPostgres) Close() error {
	s.pool.Close()
	return nil
}

func (s *inPostgres) Client(ctx context.Context, id load.Client, body func(load.Save) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return body(func(seq int, state []byte) error {
		_, err := conn.Exec(ctx, "INSERT INTO checkpoints (agent, seq, state) VALUES ($1, $2, $3)", id.Name, seq, state)
		return err
	})
}
