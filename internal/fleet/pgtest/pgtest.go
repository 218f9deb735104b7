package pgtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// Server is a PostgreSQL server of a test.
type Server struct {
	t      testing.TB
	bin    string // the folder of its programs
	folder string // of its data
	port   int
	user   []string // the command that runs a program as the server's user
	small  int      // its files cannot grow beyond about this many MiB; 0 for no limit
}

// Programs returns the folder of PostgreSQL's programs, "" if it is not installed.
func Programs() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.SortFunc(found, func(a, b string) int { return versionOf(b) - versionOf(a) })
	if len(found) > 0 {
		return filepath.Dir(found[0])
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path)
	}
	return ""
}

func versionOf(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := prepare(t)
	s.makeData()
	s.configure("wal_level=replica", "max_wal_senders=8", "shared_buffers='32MB'", "hot_standby=on", "max_connections=40")
	s.start()
	return s
}

// making is held while the data of a server are made.
var making sync.Mutex

// makeData makes the data of a new server. The first server of a test process makes them
// with initdb. The others copy them, which takes a tenth of the time.
func (s *Server) makeData() {
	s.t.Helper()
	making.Lock()
	defer making.Unlock()
	template := ""
	if home := os.Getenv(testenv.Marker); home != "" { // it is removed when the process ends
		template = filepath.Join(home, "postgresql")
		if _, err := os.Stat(template); err == nil {
			s.copyData(template, s.folder)
			return
		}
	}
	s.run("initdb", "-D", s.folder, "-A", "trust", "--no-sync", "-U", "postgres", "-E", "UTF8", "--locale=C")
	if template != "" {
		s.copyData(s.folder, template)
	}
}

// copyData copies the data of a server that is not running, with owners and modes.
func (s *Server) copyData(from, to string) {
	s.t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		s.t.Fatalf("cp: %v: %s", err, out)
	}
}

// Need skips the test if no server can be started. It returns the folder of PostgreSQL's
// programs.
func Need(t testing.TB) string {
	t.Helper()
	if os.Getenv("CKPTSIDECAR_NO_ENGINE") != "" {
		t.Skip("CKPTSIDECAR_NO_ENGINE is set: make fleet runs the tests that need PostgreSQL")
	}
	bin := Programs()
	if bin == "" {
		t.Skip("PostgreSQL is not installed: apt-get install postgresql-15")
	}
	return bin
}

// prepare finds the programs, and makes a folder that the server's user may use.
func prepare(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, bin: Need(t)}
	root, err := os.MkdirTemp("/tmp", "ckptsidecar-pg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	s.folder = filepath.Join(root, "data")
	if os.Geteuid() == 0 { // PostgreSQL refuses root
		const nobody = 65534
		s.user = []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
		if _, err := exec.LookPath("setpriv"); err != nil {
			t.Skip("PostgreSQL refuses root, and setpriv is not installed")
		}
		if err := os.Chown(root, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	s.port = freePort(t)
	return s
}

// freePort returns a port that is free. The port is below the ranges from which systems
// choose ports for connections and for listeners without a port: nobody takes it between
// this call and the start of the server, or while the server is down.
func freePort(t testing.TB) int {
	t.Helper()
	const first, last = 10240, 32767
	for range 100 {
		port := first + rand.IntN(last-first+1)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatalf("no free port was found from %d to %d", first, last)
	return 0
}

// run runs one of the programs as the server's user.
func (s *Server) run(program string, args ...string) {
	s.t.Helper()
	if out, err := s.try(program, args...); err != nil {
		log, _ := os.ReadFile(s.folder + ".log")
		s.t.Fatalf("%s: %v\n%s\n%s", program, err, out, log)
	}
}

func (s *Server) try(program string, args ...string) ([]byte, error) {
	line := append(slices.Clone(s.user), append([]string{filepath.Join(s.bin, program)}, args...)...)
	if s.small > 0 { // in blocks of 512 bytes; the extra blocks cut a page in two, which the server takes for a full disk
		line = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -f %d && exec "$@"`, s.small<<11+8), "sh"}, line...)
	}
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir = filepath.Dir(s.folder)
	return cmd.CombinedOutput()
}

// configure adds settings to the server's file.
func (s *Server) configure(lines ...string) {
	s.t.Helper()
	lines = append(lines, fmt.Sprintf("port=%d", s.port), "listen_addresses='127.0.0.1'",
		fmt.Sprintf("unix_socket_directories='%s'", filepath.Dir(s.folder)))
	f, err := os.OpenFile(filepath.Join(s.folder, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("\n" + strings.Join(lines, "\n") + "\n"); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) start() {
	s.t.Helper()
	s.t.Cleanup(func() { _, _ = s.try("pg_ctl", "-D", s.folder, "-m", "immediate", "stop") })
	s.run("pg_ctl", "-D", s.folder, "-l", s.folder+".log", "-w", "-t", "60", "start")
}

// Stop stops the server at once, as a crash does.
func (s *Server) Stop() {
	s.t.Helper()
	s.run("pg_ctl", "-D", s.folder, "-m", "immediate", "stop")
}

// Again starts a server that was stopped.
func (s *Server) Again() {
	s.t.Helper()
	s.run("pg_ctl", "-D", s.folder, "-l", s.folder+".log", "-w", "-t", "60", "start")
}

// Small restarts the server with a limit on the size of its files, in MiB, as if its disk
// were full. 0 removes the limit. The limit must be at least 16.
func (s *Server) Small(mib int) {
	s.t.Helper()
	s.Stop()
	s.small = mib
	s.Again()
}

// Standby adds a synchronous standby and waits until commits wait for it.
func (s *Server) Standby() *Server {
	s.t.Helper()
	b := s.Follower()
	s.Exec("postgres", `ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (standby)'`)
	s.Exec("postgres", `SELECT pg_reload_conf()`)
	s.wait("the standby counts", `SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'`)
	return b
}

// Follower adds a standby that commits do not wait for.
func (s *Server) Follower() *Server {
	s.t.Helper()
	b := &Server{t: s.t, bin: s.bin, folder: filepath.Join(filepath.Dir(s.folder), "standby"), port: freePort(s.t), user: s.user}
	s.run("pg_basebackup", "-D", b.folder, "-d", fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=standby", s.port),
		"-R", "-X", "stream", "-c", "fast", "--no-sync")
	b.configure()
	b.start()
	return b
}

// Promote makes a standby the primary.
func (s *Server) Promote() {
	s.t.Helper()
	s.run("pg_ctl", "-D", s.folder, "-w", "-t", "60", "promote")
}

// wait waits until a query returns true.
func (s *Server) wait(what, query string) {
	s.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if s.ask(query) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("waited too long: %s", what)
		}
	}
}

// Wait waits until a query returns true.
func (s *Server) Wait(what, query string) { s.t.Helper(); s.wait(what, query) }

func (s *Server) ask(query string) (is bool) {
	s.t.Helper()
	s.with("postgres", func(ctx context.Context, c *pgx.Conn) error { return c.QueryRow(ctx, query).Scan(&is) })
	return is
}

// Database makes an empty database and returns its URL.
func (s *Server) Database(name string) string {
	s.t.Helper()
	s.Exec("postgres", `CREATE DATABASE `+pgx.Identifier{name}.Sanitize())
	return s.URL(name)
}

// URL returns the URL of a database of the server.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s", s.port, database)
}

// Exec runs a statement in a database.
func (s *Server) Exec(database, statement string) {
	s.t.Helper()
	s.with(database, func(ctx context.Context, c *pgx.Conn) error { _, err := c.Exec(ctx, statement); return err })
}

// Rows returns the rows of a query, each as text.
func (s *Server) Rows(database, query string) (list []string) {
	s.t.Helper()
	s.with(database, func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			values, err := rows.Values()
			if err != nil {
				return err
			}
			list = append(list, strings.TrimSuffix(fmt.Sprintln(values...), "\n"))
		}
		return rows.Err()
	})
	return list
}

// Backup copies the server's data, and returns a function that brings the server back to
// the copy.
func (s *Server) Backup() (back func()) {
	s.t.Helper()
	aside := s.folder + ".aside"
	take := func(from, to string) {
		s.t.Helper()
		s.Stop()
		if err := os.RemoveAll(to); err != nil {
			s.t.Fatal(err)
		}
		line := append(slices.Clone(s.user), "cp", "-a", from, to)
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			s.t.Fatalf("%v: %v\n%s", line, err, out)
		}
		s.Again()
	}
	take(s.folder, aside)
	return func() { s.t.Helper(); take(aside, s.folder) }
}

// Dump returns the output of pg_dump for a database.
func (s *Server) Dump(database string) string {
	s.t.Helper()
	out, err := s.try("pg_dump", s.URL(database))
	if err != nil {
		s.t.Fatalf("pg_dump: %v\n%s", err, out)
	}
	return string(out)
}

// Try runs a statement at a URL, and returns how many rows it has changed.
func (s *Server) Try(url, statement string) (rows int64, err error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close(ctx)
	tag, err := c.Exec(ctx, statement)
	return tag.RowsAffected(), err
}

func (s *Server) with(database string, f func(context.Context, *pgx.Conn) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close(ctx)
	if err := f(ctx, c); err != nil {
		s.t.Fatal(err)
	}
}

// Lock runs a statement in a transaction that stays open until letGo is called.
func (s *Server) Lock(database, statement string) (letGo func()) {
	s.t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		s.t.Fatal(err)
	}
	letGo = sync.OnceFunc(func() { _ = c.Close(ctx) })
	s.t.Cleanup(letGo)
	for _, line := range []string{`BEGIN`, statement} {
		if _, err := c.Exec(ctx, line); err != nil {
			s.t.Fatal(err)
		}
	}
	return letGo
}
