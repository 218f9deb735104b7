package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// TestMeasureChanges measures what docs/PERFORMANCE.md says about growing
// states over the socket. CKPTSIDECAR_MEASURE=1 go test -run Measure -v
// ./internal/ipc
func TestMeasureChanges(t *testing.T) {
	if os.Getenv("CKPTSIDECAR_MEASURE") == "" {
		t.Skip("CKPTSIDECAR_MEASURE is not set")
	}
	for _, size := range []int{64 << 10, 512 << 10} {
		for _, clients := range []int{1, 16} {
			for _, scan := range []bool{false, true} {
				for _, form := range []string{"whole, stored whole", "whole, stored as pieces", "change, stored as pieces"} {
					measureChanges(t, size, clients, form, scan)
				}
			}
		}
	}
}

func measureChanges(t *testing.T, size, clients int, form string, scan bool) {
	o := ledger.Options{}
	if strings.HasSuffix(form, "stored whole") {
		o.LiveBytes = -1
	}
	if scan {
		o.Secrets = secrets.Scan{}
	}
	socket := startDaemon(t, o)
	var mu sync.Mutex
	var times []time.Duration
	begin := time.Now()
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			client := &client.Client{Socket: socket, Whole: strings.HasPrefix(form, "whole")}
			defer client.Close()
			s := newGrowing(size, c)
			var mine []time.Duration
			for time.Since(begin) < 1500*time.Millisecond {
				state := s.next()
				start := time.Now()
				_, err := client.Save(t.Context(), &ckpt.SaveRequest{Agent: fmt.Sprint("a", c), Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state})
				if err != nil {
					t.Error(err)
					return
				}
				mine = append(mine, time.Since(start))
			}
			mu.Lock()
			times = append(times, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	rate := float64(len(times)) / time.Since(begin).Seconds()
	slices.Sort(times)
	fmt.Printf("| %d KiB | %d | %s | %v | %.0f | %.2f | %.2f |\n", size>>10, clients, form, scan, rate, times[len(times)/2].Seconds()*1000, times[len(times)*99/100].Seconds()*1000)
}

// growing is a JSON state to which each step adds a message. A counter near its
// front changes as well. It starts over when it has grown by an eighth.
type growing struct {
	state             []byte
	size, first, step int
}

func newGrowing(size, client int) *growing {
	s := &growing{size: size, state: fmt.Appendf(nil, `{"step":%06d,"messages":[`, 100000)}
	for i := 0; len(s.state) < size; i++ {
		s.state = fmt.Appendf(s.state, `{"role":"user","content":"message %x of client %d says %x"},`, i*7919, client, i*104729)
	}
	s.first = len(s.state)
	s.state = append(s.state, "0]}"...)
	return s
}

// next returns the next state. The call after it overwrites that state.
func (s *growing) next() []byte {
	if len(s.state) > s.size*9/8 {
		s.state = append(s.state[:s.first], "0]}"...)
	}
	copy(s.state[8:], fmt.Sprint(100000+s.step))
	s.state = fmt.Appendf(s.state[:len(s.state)-3], `{"role":"assistant","content":"%s %x"},0]}`, strings.Repeat("new words ", 150*s.size>>19+15), s.step*15485863)
	s.step++
	return s.state
}

// startDaemon serves a new database until the test ends, and returns the path
// of its socket.
func startDaemon(t testing.TB, o ledger.Options) (socket string) {
	dir, err := os.MkdirTemp("", "m") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	o.Path, o.Retention = filepath.Join(dir, "ckpt.db"), retention.Plan
	ctx, cancel := context.WithCancel(context.Background())
	store, err := db.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	server := server.NewServer(server.Options{Store: server.StoreOf(store), Log: slog.New(slog.DiscardHandler)})
	socket = filepath.Join(dir, "s")
	ln, err := endpoint.Listen(ctx, endpoint.Options{Path: socket, SingleUser: true})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = store.Maintain(ctx) })
	wg.Go(func() { _ = server.Serve(context.Background(), ln) })
	t.Cleanup(func() {
		_ = server.Shutdown(context.Background())
		cancel()
		wg.Wait()
		_ = store.Close()
		_ = os.RemoveAll(dir)
	})
	return socket
}
