package drivers

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "modernc.org/sqlite" // the driver that DBOS itself uses

	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
)

// inDBOS records a step for each state, inside one workflow for each client.
type inDBOS struct {
	db     *sql.DB
	ctx    dbos.DBOSContext
	bodies sync.Map // by workflow: the function that its client runs
}

// openDBOS opens the database as DBOS would, but with synchronous=FULL: the default of DBOS,
// NORMAL, does not flush a commit.
func openDBOS(ctx context.Context, dir string) (load.Store, error) {
	query := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(5000)", "foreign_keys(ON)", "journal_mode(WAL)", "synchronous(FULL)"}}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "dbos.db")+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	s := &inDBOS{db: db}
	s.ctx, err = dbos.NewDBOSContext(ctx, dbos.Config{
		AppName: "bench", ApplicationVersion: "1", SqliteSystemDB: db, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		db.Close()
		return nil, err
	}
	dbos.RegisterWorkflow(s.ctx, s.workflow, dbos.WithWorkflowName("agent"))
	return s, dbos.Launch(s.ctx)
}

// workflow runs the function of its client, and makes each save a step.
func (s *inDBOS) workflow(ctx dbos.DBOSContext, key string) (string, error) {
	body, known := s.bodies.LoadAndDelete(key)
	if !known {
		return "", fmt.Errorf("nobody waits for the workflow %s", key)
	}
	return "", body.(func(load.Save) error)(func(_ int, state []byte) error {
		_, err := dbos.RunAsStep(ctx, func(context.Context) (string, error) { return string(state), nil })
		return err
	})
}

func (s *inDBOS) Client(_ context.Context, id load.Client, body func(load.Save) error) error {
	key := fmt.Sprintf("%s-%d", id.Name, time.Now().UnixNano())
	s.bodies.Store(key, body)
	run, err := dbos.RunWorkflow(s.ctx, s.workflow, key, dbos.WithWorkflowID(key))
	if err != nil {
		return err
	}
	_, err = run.GetResult()
	return err
}

// Version returns the version of the DBOS module.
func (s *inDBOS) Version() string {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == "github.com/dbos-inc/dbos-transact-golang" {
			return m.Version
		}
	}
	return ""
}

func (s *inDBOS) Close() error {
	dbos.Shutdown(s.ctx, 5*time.Second)
	return s.db.Close()
}
