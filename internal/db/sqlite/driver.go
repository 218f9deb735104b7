package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jmoiron/sqlx"
	"modernc.org/sqlite"
)

// PageSize is the page size of a new file. It was measured: if a small checkpoint replaces the row
// of another, a save writes as many pages of 4 KiB as of 8. Compared with 8 KiB, a save writes 0.64
// to 0.80 of the bytes, kept histories take 0.4 to 2.9 % more, and restores take 0.95 to 1.13 of
// the time.
const PageSize = 4096

// The driver applies pragmas in lexicographic order. The order does not matter for these. Pragmas
// that need an order, when the file is made, are in format.
var (
	writerPragmas = []string{
		"busy_timeout(0)", // the writer waits by itself, so that it can say why
		"cache_size(-16384)",
		"cell_size_check(1)",
		"foreign_keys(1)",
		"secure_delete(FAST)", // zeroes only pages that it writes anyway; erase does more
		"synchronous(FULL)",
		"temp_store(2)",
		"trusted_schema(0)",
		"wal_autocheckpoint(0)", // maintain.go copies the log and watches the result: SQLite's own failures are silent
	}
	readerPragmas = []string{
		"busy_timeout(2000)",
		"cache_size(-8192)",
		"cell_size_check(1)",
		"query_only(1)",
		"temp_store(2)",
		"trusted_schema(0)",
	}
)

// checkerPragmas leave query_only off, because VACUUM INTO writes, though not into this database.
var checkerPragmas = []string{
	"busy_timeout(5000)", "cache_size(-16384)", "cell_size_check(1)", "temp_store(2)", "trusted_schema(0)",
}

// OpenBeside opens a database for a copy or a check, while this process or another may also have it
// open. It only reads. The caller must call close.
func OpenBeside(path string, connections int) (db *sqlx.DB, close func(), err error) {
	readingBeside.Add(1)
	if db, err = pool(path, "ro", connections, checkerPragmas); err != nil {
		readingBeside.Add(-1)
		return nil, nil, err
	}
	return db, func() {
		_ = db.Close()
		readingBeside.Add(-1)
	}, nil
}

// useOFDLocks makes SQLite lock the database file by open file and not by process. If the system has no such locks,
// only the rule of doc.go protects the locks. Any other failure is a bug: a database was opened before this call.
var useOFDLocks = sync.OnceValue(func() error {
	_, err := sqlite.OFDLocking(true)
	if errors.Is(err, sqlite.ErrOFDLockingUnavailable) {
		return nil
	}
	return err
})

// dsn names a database file so that no byte of its path is read as a parameter.
func dsn(path, mode string, pragmas []string) string {
	q := url.Values{"mode": {mode}, "_defensive": {"1"}}
	for _, p := range pragmas {
		q.Add("_pragma", p)
	}
	return (&url.URL{Scheme: "file", OmitHost: true, Path: slashed(path), RawQuery: q.Encode()}).String()
}

// slashed turns C:\x\y into /C:/x/y, the form that SQLite's URIs need.
func slashed(path string) string {
	if strings.Contains(path, `\`) {
		path = strings.ReplaceAll(path, `\`, "/")
	}
	if len(path) > 1 && path[1] == ':' {
		path = "/" + path
	}
	return path
}

// connector opens connections that leave the write-ahead log in place when they close, so that a
// read-only auditor still finds it after a clean stop.
type connector struct{ driver.Connector }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	files, ok := conn.(sqlite.FileControl)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("the SQLite driver cannot keep the write-ahead log in place")
	}
	if _, err := files.FileControlPersistWAL("main", 1); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// pool opens a pool of at most size connections.
func pool(path, mode string, size int, pragmas []string) (*sqlx.DB, error) {
	base, err := connect(path, mode, pragmas)
	if err != nil {
		return nil, err
	}
	return poolOf(base, size), nil
}

// readers opens a pool of reading connections that keep prepared statements. It calls met with each error of a query.
func readers(path string, size int, met func(error)) (*sqlx.DB, error) {
	base, err := connect(path, "ro", readerPragmas)
	if err != nil {
		return nil, err
	}
	return poolOf(keeper{base, met}, size), nil
}

func connect(path, mode string, pragmas []string) (driver.Connector, error) {
	if err := useOFDLocks(); err != nil {
		return nil, err
	}
	base, err := sqlite.NewConnector(dsn(path, mode, pragmas))
	return connector{base}, err
}

func poolOf(c driver.Connector, size int) *sqlx.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return sqlx.NewDb(db, "sqlite3")
}

// readingBeside counts the connections of this process that read a database for copies and checks, not for a store.
var readingBeside atomic.Int32
