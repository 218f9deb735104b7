package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// evilEngine answers every client with a PostgreSQL error that contains evil.
func evilEngine(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	var answer bytes.Buffer
	fields := "SFATAL\x00VFATAL\x00C28000\x00Mno" + evil + "\x00D" + evil + "\x00\x00"
	answer.WriteByte('E')
	must(t, binary.Write(&answer, binary.BigEndian, int32(len(fields)+4)))
	answer.WriteString(fields)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			var size int32
			if binary.Read(conn, binary.BigEndian, &size) == nil && size < 1<<16 {
				_, _ = io.CopyN(io.Discard, conn, int64(size)-4)
				_, _ = conn.Write(answer.Bytes())
			}
			_ = conn.Close()
		}
	}()
	return fmt.Sprintf("postgres://u:canary@%s/x?sslmode=disable", l.Addr())
}

// fleetWorld is a daemon that ships to an engine.
type fleetWorld struct {
	evilWorld
	url string
}

func newFleetWorld(t *testing.T, url string) *fleetWorld {
	t.Helper()
	folder, err := os.MkdirTemp("", "see") // the path of a socket must be short
	must(t, err)
	w := &fleetWorld{evilWorld{folder: folder, socket: filepath.Join(folder, "d")}, url}
	w.client = &client.Client{Socket: w.socket}
	file := filepath.Join(folder, "engine")
	must(t, os.WriteFile(file, []byte(url+"\n"), 0o600))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int)
	var log bytes.Buffer
	go func() {
		ended <- run(ctx, []string{"serve", "--db", filepath.Join(folder, "ckpt.db"), "--socket", w.socket, "--set", "fleet.engine_file=" + file, "--set", "fleet.name=seen-host"},
			process{stdin: strings.NewReader(""), stdout: &log, stderr: &log, env: w.env})
	}()
	t.Cleanup(func() {
		w.client.Close()
		stop()
		if code := <-ended; code != cli.ExitDone {
			t.Errorf("the daemon ended with %d: %s", code, &log)
		}
		_ = os.RemoveAll(folder)
	})
	expect.Soon(t, "the daemon is ready", func() bool { return w.client.Ready(t.Context()) == nil })
	return w
}

func (w *fleetWorld) shipped(t *testing.T) {
	t.Helper()
	expect.Soon(t, "all is shipped", func() bool {
		s, err := client.Operator{Client: w.client}.Fleet(t.Context())
		return err == nil && s.State == "shipping" && s.Unshipped == 0
	})
}

// wants runs a command and checks its output for texts.
func (w *fleetWorld) wants(t *testing.T, code int, args []string, texts ...string) called {
	t.Helper()
	w.columns = "80"
	got := w.said(t, "", args...)
	if got.code != code {
		t.Errorf("%q ends with %d, want %d: %s", args, got.code, code, got.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(got.stdout+got.stderr, text) {
			t.Errorf("%q does not say %q:\n%s%s", args, text, got.stdout, got.stderr)
		}
	}
	for line := range strings.Lines(got.stdout) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 && !strings.Contains(line, `\u`) {
			t.Errorf("%q prints a line of %d columns: %s", args, n, line)
		}
	}
	if at := strings.IndexAny(got.stdout+got.stderr, raw); at >= 0 {
		t.Errorf("%q prints a control character: %q", args, got.stdout+got.stderr)
	}
	return got
}

// TestFleetSeen looks at a fleet as an operator does, through the daemon and directly at the engine.
func TestFleetSeen(t *testing.T) {
	engine := pgtest.Start(t)
	url := engine.Database("fleet")
	if _, _, err := host.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	w := newFleetWorld(t, url)
	for _, agent := range []string{"first", "second", "third"} {
		_, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: agent, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`{}`)})
		must(t, err)
	}
	w.shipped(t)
	for second, agent := range []string{"first", "second", "third"} { // they may have been saved in the same millisecond
		engine.Exec("fleet", fmt.Sprintf(`UPDATE fleet_runs SET updated_at = '2026-01-01T00:00:0%d.000Z' WHERE agent = '%s'`, second, agent))
	}
	w.wants(t, cli.ExitDone, []string{"fleet", "status"}, "shipping", "seen-host", "PostgreSQL", "127.0.0.1:", "0 rows")
	w.wants(t, cli.ExitDone, []string{"fleet", "status", "--jq", ".state"}, "shipping")
	if got := w.wants(t, cli.ExitDone, []string{"fleet", "hosts"}, "seen-host (here)"); !regexp.MustCompile(`just now| (s|min) ago`).MatchString(got.stdout) {
		t.Errorf("it does not say when the host was seen:\n%s", got.stdout)
	}
	w.wants(t, cli.ExitDone, []string{"fleet", "hosts", url}, "seen-host")
	w.wants(t, cli.ExitDone, []string{"fleet", "hosts", "--format", "{{.name}} {{.runs}}"}, "seen-host 3\n")
	if got := w.wants(t, cli.ExitDone, []string{"fleet", "hosts", "-q"}); len(got.stdout) != 37 {
		t.Errorf("the ids of hosts are %q", got.stdout)
	}
	for _, args := range [][]string{{"fleet", "runs"}, {"fleet", "runs", url}, {"runs", "--fleet"}} {
		w.wants(t, cli.ExitDone, args, "HOST", "first", "second", "third", "running")
		if got := w.wants(t, cli.ExitDone, append(args, "-q")); got.stdout != "third/main\nsecond/main\nfirst/main\n" {
			t.Errorf("%q prints %q", args, got.stdout)
		}
		if got := w.wants(t, cli.ExitDone, append(args, "-n", "2"), "there are more: "); strings.Contains(got.stdout, "first") {
			t.Errorf("a page of two is\n%s", got.stdout)
		}
	}
	all := w.wants(t, cli.ExitDone, []string{"fleet", "runs", "-n", "1", "--json", "--jq", ".next"})
	w.wants(t, cli.ExitDone, []string{"fleet", "runs", "--before", strings.Trim(all.stdout, "\"\n")}, "second", "first")
	w.wants(t, cli.ExitDone, []string{"fleet", "runs", "--agent", "first", "--host", "seen-host", "--status", "running"}, "first")
	w.wants(t, cli.ExitDone, []string{"fleet", "runs", "--status", "failed"}, "no run of the fleet matches")

	engine.Exec("fleet", `UPDATE fleet_hosts SET name = 'n`+evil+`', version = 'v`+evil+`'`)
	engine.Exec("fleet", `UPDATE fleet_runs SET agent = 'a`+evil+`', owner = 'o`+evil+`', status = 's`+evil+`', updated_at = 'u`+evil+`'`)
	for _, args := range [][]string{{"fleet", "hosts"}, {"fleet", "hosts", url}, {"fleet", "runs"}, {"fleet", "runs", url}, {"runs", "--fleet"}} {
		w.wants(t, cli.ExitDone, args, `\u`)
	}
	engine.Stop()
	_, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "first", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`{}`)})
	must(t, err)
	expect.Soon(t, "the daemon knows that the engine is away", func() bool {
		s, err := client.Operator{Client: w.client}.Fleet(t.Context())
		return err == nil && s.State == "unreachable"
	})
	w.wants(t, cli.ExitFailed, []string{"fleet", "status"}, "unreachable", "! ")
	w.wants(t, cli.ExitTryLater, []string{"fleet", "runs"}, "the fleet's engine cannot be asked")
	engine.Again()
	w.damaged(t, engine)
}

// TestFleetErases erases agents while another host is away, and forgets that host.
func TestFleetErases(t *testing.T) {
	engine := pgtest.Start(t)
	url := engine.Database("fleet")
	_, _, err := host.Migrate(t.Context(), url)
	must(t, err)
	w := newFleetWorld(t, url)
	for _, agent := range []string{"second", "third"} {
		_, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: agent, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`{}`)})
		must(t, err)
	}
	w.shipped(t)
	engine.Exec("fleet", `INSERT INTO fleet_hosts (db, name, version, schema, incarnation, registered_at) VALUES ('other', 'host-away', 'x', 6, 1, clock_timestamp())`)
	engine.Exec("fleet", `INSERT INTO fleet_marks (db, mark_n, mark_hash, beats, seen_at) VALUES ('other', 0, '', 0, clock_timestamp())`)
	engine.Exec("fleet", `UPDATE fleet_marks SET seen_at = clock_timestamp() - interval '1 hour' WHERE db = 'other'`)
	expect.Soon(t, "the daemon knows the other host", func() bool {
		_, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "fourth", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`{}`)})
		must(t, err)
		gone, err := w.client.Erase(t.Context(), "fourth")
		must(t, err)
		return slices.Equal(gone.Fleet.Waiting, []string{"host-away"})
	})
	w.wants(t, cli.ExitDone, []string{"erase", "third", "--yes"}, "third  erased: 1 run", "not erased yet on these hosts of the fleet: host-away")
	w.shipped(t)
	w.wants(t, cli.ExitDone, []string{"fleet", "status"}, "agent third of", "waiting for host-away", "ckptsidecar fleet forget HOST")
	w.wants(t, cli.ExitNotFound, []string{"fleet", "forget", "nobody", url}, "no host nobody")
	w.wants(t, cli.ExitConflict, []string{"fleet", "forget", "seen-host", url}, "host seen-host is not gone")
	w.wants(t, cli.ExitDone, []string{"fleet", "forget", "host-away", url}, "forgotten  host host-away: no erasure waits for it")
	w.wants(t, cli.ExitDone, []string{"fleet", "hosts", url}, "host-away", "forgotten")
}

// TestWhoAsksForARunOfAnotherHost: a run of this host was claimed by another one. Whoever asks for the run is told so, and does
// not go on. The next session of a coding agent begins all the same.
func TestWhoAsksForARunOfAnotherHost(t *testing.T) {
	engine := pgtest.Start(t)
	url := engine.Database("fleet")
	_, _, err := host.Migrate(t.Context(), url)
	must(t, err)
	w := newFleetWorld(t, url)
	begins := func(session, source string) called {
		t.Helper()
		input := fmt.Sprintf(`{"session_id":%q,"cwd":%q,"hook_event_name":"SessionStart","source":%q}`, session, w.folder, source)
		return w.said(t, input, "hook", "--for", "claude-code", "--agent", "coder")
	}
	if got := begins("first", "startup"); got.code != cli.ExitDone {
		t.Fatalf("a session begins with %+v", got)
	}
	other := newFleetWorld(t, url)
	w.shipped(t)
	run := w.runOf(t, "first")
	other.wants(t, cli.ExitDone, []string{"fleet", "claim", "coder/" + run, "--force"}, "is on this host now")
	expect.Soon(t, "this host knows of the claim", func() bool {
		r, err := w.client.Run(t.Context(), ckpt.RunRef{Agent: "coder", Run: run})
		return err == nil && r.Ownership == ckpt.OwnershipFenced
	})
	if got := w.said(t, "", "resume", "coder", "--run", run); got.code == cli.ExitDone || !strings.Contains(got.stderr, "host seen-host") {
		t.Errorf("a resumption is answered %+v", got)
	}
	if got := begins("first", "resume"); !strings.Contains(got.stdout, "Another host of the fleet has this session") {
		t.Errorf("the session that goes on is told %+v", got)
	}
	begins("second", "startup")
	if run := w.runOf(t, "second"); run == "" {
		t.Error("the next session is not recorded")
	}
}

// runOf returns the run of a session, "" if there is none.
func (w *fleetWorld) runOf(t *testing.T, session string) string {
	t.Helper()
	page, err := w.client.Runs(t.Context(), ckpt.RunFilter{Agent: "coder"})
	must(t, err)
	for _, r := range page.Runs {
		if strings.Contains(r.Run, session) || r.ExternalSession == ckpt.Ref(session) {
			return r.Run
		}
	}
	return ""
}

// damaged restores a host whose copy in the engine is damaged in one place.
func (w *fleetWorld) damaged(t *testing.T, engine *pgtest.Server) {
	t.Helper()
	expect.Soon(t, "the daemon ships again", func() bool { // it writes the host's name again
		s, err := client.Operator{Client: w.client}.Fleet(t.Context())
		return err == nil && s.State == "shipping" && s.Unshipped == 0
	})
	name := engine.Rows("fleet", `SELECT name FROM fleet_hosts`)[0]
	engine.Exec("fleet", `UPDATE fleet_checkpoints SET body = 'damaged', pieces = NULL WHERE id = (SELECT id FROM fleet_checkpoints ORDER BY n LIMIT 1)`)
	lost := engine.Rows("fleet", `SELECT id FROM fleet_checkpoints ORDER BY n LIMIT 1`)[0]
	w.wants(t, cli.ExitDamaged, []string{"fleet", "verify", w.url}, lost, "checkpoint", "of host "+name, "the engine has 1 problem")
	w.wants(t, cli.ExitDamaged, []string{"fleet", "verify", w.url, "--jq", ".problems[].rule"}, "checkpoint")
	host := engine.Rows("fleet", `SELECT db FROM fleet_hosts`)[0]
	other := newFleetWorld(t, w.url)
	all := []string{"fleet", "claim", "--host", host, "--all", "--force"}
	other.wants(t, cli.ExitConflict, all, "claimed", "is on this host now", lost[:13], "This was left out", "first", "refused", "2 runs did not come")
	other.wants(t, cli.ExitConflict, append(all, "--jq", ".claimed|length"), "0", "2 runs did not come")
	other.wants(t, cli.ExitNotFound, []string{"fleet", "claim", "--host", "nobody", "--all"}, "no run of another host")
	other.wants(t, cli.ExitUsage, []string{"fleet", "claim", "--all"}, "--host")
	other.wants(t, cli.ExitUsage, []string{"fleet", "claim"}, "name the run")
}
