package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// The errors that a caller can tell apart.
var (
	// ErrUnknown means that nobody knows whether a batch is safe: its commit came with a
	// warning, or its answer did not come. The mark tells what happened.
	ErrUnknown = errors.New("the engine does not say that the batch is replicated")
	// ErrMoved means that the mark is not where this host left it.
	ErrMoved = errors.New("the engine's mark of this host has moved: another daemon ships for the same database, or the engine went back")
	// ErrSchema means that the tables do not exist, or have another version.
	ErrSchema = errors.New("the engine's tables do not fit this program")
	// ErrFull means that the engine has no room.
	ErrFull = errors.New("the engine is full")
	// ErrRights means that this host's role lacks a right.
	ErrRights = errors.New("the engine refuses it")
)

// patience is the timeout of one call to the engine.
const patience = 30 * time.Second

// Engine is one connection. Only one goroutine may use it.
type Engine struct {
	conn    *pgx.Conn
	warned  atomic.Bool // a commit came with a warning about replication
	alone   bool        // the last commit waited for no standby, because the engine names none
	version string
	has     memory
	before  int64 // how often the engine had heard from the database that registered last, before that
	heard   int64 // how often the engine had heard from the database, at its last acknowledgment
}

// Dial connects to the engine. The url holds a password, so no error shows it.
func Dial(ctx context.Context, url string) (*Engine, error) {
	config, err := parse(url)
	if err != nil {
		return nil, err
	}
	e := &Engine{}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { e.heed(n) }
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "ckptsidecar"
	}
	if e.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return nil, &unreachable{err}
	}
	if err := e.prepare(ctx); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// unreachable is why there is no connection. The driver names each server on a line of its own.
type unreachable struct{ error }

func (e *unreachable) Unwrap() error { return e.error }

func (e *unreachable) Error() string {
	return "the engine cannot be reached: " + strings.Join(strings.Fields(e.error.Error()), " ")
}

// Address returns where a URL leads: servers and a database, but neither the user nor
// the password. It returns "" if the URL cannot be read.
func Address(url string) string {
	config, err := parse(url)
	if err != nil {
		return ""
	}
	at := func(host string, port uint16) string {
		if strings.HasPrefix(host, "/") {
			return host
		}
		return net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	servers := []string{at(config.Host, config.Port)}
	for _, f := range config.Fallbacks {
		if server := at(f.Host, f.Port); !slices.Contains(servers, server) { // each is tried with and without TLS
			servers = append(servers, server)
		}
	}
	return strings.Join(servers, ",") + "/" + config.Database
}

// CheckURL returns why a text is not the URL of an engine, nil if it is.
func CheckURL(url string) error {
	_, err := parse(url)
	return err
}

func parse(url string) (*pgx.ConnConfig, error) {
	if !strings.HasPrefix(url, "postgres://") && !strings.HasPrefix(url, "postgresql://") {
		return nil, errors.New("the engine's URL must begin with postgres://")
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the engine's URL cannot be read: write postgres://USER:PASSWORD@HOST:PORT/DATABASE, and %XX for special characters in the password")
	}
	return config, nil
}

// heed notes a warning. If the wait for a standby is canceled, PostgreSQL commits all
// the same, and only warns. A batch gives no other reason to warn. The text cannot be
// checked, because messages are translated.
func (e *Engine) heed(n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		e.warned.Store(true)
	}
}

// sessions are the settings of every session, so that a session that falls silent holds
// up nobody. Settings that an engine does not know are skipped.
var sessions = []string{
	`SET idle_in_transaction_session_timeout = '1500ms'`,
	`SET lock_timeout = '5s'`,
	`SET statement_timeout = '25s'`,
	`SET transaction_timeout = '25s'`, // PostgreSQL 17 and newer
	`SET tcp_user_timeout = '15s'`,
	`SET tcp_keepalives_idle = '5s'`,
	`SET tcp_keepalives_interval = '2s'`,
	`SET tcp_keepalives_count = '3'`,
}

func (e *Engine) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := e.conn.QueryRow(ctx, `SELECT version()`).Scan(&e.version); err != nil {
		return told(err)
	}
	for _, set := range sessions {
		if _, err := e.conn.Exec(ctx, set); err != nil && !isUnknownSetting(err) {
			return told(err)
		}
	}
	var commit string
	if err := e.conn.QueryRow(ctx, `SHOW synchronous_commit`).Scan(&commit); err != nil {
		return nil // this engine does not have this setting
	}
	// Set it in any case: a session that has set it does not follow changes of the
	// server's file.
	set := `SET synchronous_commit = 'on'`
	if commit == "remote_apply" {
		set = `SET synchronous_commit = 'remote_apply'`
	}
	_, err := e.conn.Exec(ctx, set)
	return told(err)
}

// Alone reports that the last batch was committed on the engine's own machine only,
// because the engine names no standby.
func (e *Engine) Alone() bool { return e.alone }

func isUnknownSetting(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "42704" || e.Code == "0A000" || e.Code == "22023")
}

// Close ends the connection.
func (e *Engine) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = e.conn.Close(ctx)
}

// Profile returns which kind of engine it is.
func (e *Engine) Profile() string { return fleet.ProfileOf(e.version) }

// Version returns what the engine calls itself.
func (e *Engine) Version() string { return e.version }

// callError is an error of the engine, or of the connection to it.
type callError struct{ error }

func (e *callError) Unwrap() error { return e.error }

// Failed reports whether an error came from the engine, or from the connection to it.
func Failed(err error) bool {
	var e *callError
	return errors.As(err, &e) || errors.Is(err, ErrUnknown) || errors.Is(err, ErrMoved)
}

// told adds what to do to an error of the engine.
func told(err error) error {
	if err == nil {
		return nil
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch e.Code {
		case "42P01":
			err = fmt.Errorf("%w: %s; run `ckptsidecar fleet migrate`", ErrSchema, e.Message)
		case "53100":
			err = fmt.Errorf("%w: %s", ErrFull, e.Message)
		case "42501":
			err = fmt.Errorf("%w: %s; docs/FLEET.md lists the rights", ErrRights, e.Message)
		}
	}
	return &callError{err}
}

// codeOf returns the SQLSTATE of an error, "" if it has none.
func codeOf(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// meta reads fleet_meta.
func (e *Engine) meta(ctx context.Context) (map[string]string, error) {
	rows, err := e.conn.Query(ctx, getMeta)
	if err != nil {
		return nil, told(err)
	}
	all := map[string]string{}
	var key, value string
	_, err = pgx.ForEachRow(rows, []any{&key, &value}, func() error { all[key] = value; return nil })
	return all, told(err)
}
