package host

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// TestShipper ships to an engine that dies and comes back, and stops if the engine has another past.
func TestShipper(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	store, err := db.Open(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "ckpt.db"), Retention: retention.Plan, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	save := func() {
		t.Helper()
		_, err := store.Save(t.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1"}}, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &shipper{line: line{url: func() (string, error) { return url, nil }}, reader: journal.New(store.Core), log: slog.New(slog.DiscardHandler), bytes: 1 << 20,
		wordFile: filepath.Join(t.TempDir(), "ckpt.db"+wordSuffix), waiters: newWaiters(),
		host: fleet.Host{DB: store.ID, Name: "here"}, pace: fleet.Pace{Floor: 10 * time.Millisecond, Most: 100 * time.Millisecond}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	there := func(seq int) {
		t.Helper()
		expect.Soon(t, fmt.Sprintf("checkpoint %d is in the engine", seq), func() bool {
			got := server.Rows("fleet", `SELECT seq FROM fleet_runs WHERE status <> ''`)
			return len(got) == 1 && got[0] == fmt.Sprint(seq)
		})
	}
	save()
	there(1)
	server.Stop()
	save() // a dead engine does not delay saves
	server.Again()
	there(2)
	large := fmt.Appendf(nil, `{"text":"%s"}`, strings.Repeat("x", 3<<20)) // more than a batch holds
	if _, err := store.Save(t.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1"}}, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: large}); err != nil {
		t.Fatal(err)
	}
	there(3)
	// The engine has the row before the host knows of it.
	expect.Soon(t, "the host knows that the last save is in the engine", func() bool {
		rows, _, err := s.reader.Behind(t.Context(), s.told().mark.N)
		return err == nil && rows == 0
	})
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	told := s.told()
	if rows, _, err := s.reader.Behind(t.Context(), told.mark.N); err != nil || rows != 0 || told.batches < 3 || told.took <= 0 {
		t.Errorf("after all was shipped %d rows are behind, %+v, %v", rows, told, err)
	}
	if rows, oldest, err := s.reader.Behind(t.Context(), 1); err != nil || rows < 2 || oldest == 0 {
		t.Errorf("behind row 1 are %d rows since %d, %v", rows, oldest, err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	if families, err := registry.Gather(); err != nil || len(families) != 9 {
		t.Errorf("the metrics are %v, %v", families, err)
	}
	hosts, err := Hosts(t.Context(), url)
	if err != nil || len(hosts.Hosts) != 1 || hosts.Hosts[0].Name != "here" || hosts.Hosts[0].Runs != 1 {
		t.Errorf("hosts are %+v, %v", hosts, err)
	}
	server.Exec("fleet", `UPDATE fleet_marks SET mark_hash = 'another'`)
	err = s.once(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another past") {
		t.Errorf("an engine with another past answers %v", err)
	}
	if s.note(err); !strings.Contains(s.Problem(), "another past") {
		t.Errorf("a person is not told at once: %q", s.Problem())
	}
	s.hangUp()
	wentBack(t, s, server)
}

// wentBack restores an older copy of the engine while the daemon is down.
func wentBack(t *testing.T, was *shipper, server *pgtest.Server) {
	t.Helper()
	server.Exec("fleet", `UPDATE fleet_marks SET mark_n = 0, mark_hash = ''`)
	log := &bytes.Buffer{}
	s := &shipper{line: line{url: was.url}, reader: was.reader, log: slog.New(slog.NewTextHandler(log, nil)), bytes: 1 << 20, host: was.host, wordFile: was.wordFile, waiters: newWaiters()}
	if err := s.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.hangUp()
	if !strings.Contains(log.String(), "went back") {
		t.Errorf("nobody is told that the engine went back over a restart: %s", log)
	}
	log.Reset()
	other := fleet.Host{DB: "another", Name: "another"}
	if m, err := readWord(s.wordFile, other.DB, s.engineID); m.Mark.N != 0 || err != nil {
		t.Errorf("the word of another database is %v, %v", m, err)
	}
	if err := os.WriteFile(s.wordFile, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readWord(s.wordFile, s.host.DB, s.engineID); err == nil {
		t.Error("a torn file says something")
	}
}
