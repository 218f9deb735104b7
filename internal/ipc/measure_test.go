package ipc_test

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
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// TestMeasureChanges measures what docs/PERFORMANCE.md says of growing states
// over the socket. CKPTSIDECAR_MEASURE=1 go test -run Measure -v ./internal/ipc
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
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	o := db.Options{Path: filepath.Join(dir, "ckpt.db"), Retention: retention.Plan}
	if strings.HasSuffix(form, "stored whole") {
		o.LiveBytes = -1
	}
	if scan {
		o.Secrets = secrets.Scan{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	store, err := db.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	go store.Maintain(ctx)
	server := ipc.NewServer(ipc.Options{Store: store, Log: slog.New(slog.DiscardHandler)})
	ln, err := endpoint.Listen(ctx, endpoint.Options{Path: filepath.Join(dir, "s"), SingleUser: true})
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(context.Background(), ln)
	var mu sync.Mutex
	var times []time.Duration
	begin := time.Now()
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			client := &ipc.Client{Socket: filepath.Join(dir, "s"), Whole: strings.HasPrefix(form, "whole")}
			defer client.Close()
			state := fmt.Appendf(nil, `{"step":%06d,"messages":[`, 100000)
			for i := 0; len(state) < size; i++ {
				state = fmt.Appendf(state, `{"role":"user","content":"message %x of client %d says %x"},`, i*7919, c, i*104729)
			}
			first := len(state)
			state = append(state, "0]}"...)
			var mine []time.Duration
			for i := 0; time.Since(begin) < 1500*time.Millisecond; i++ {
				copy(state[8:], fmt.Sprint(100000+i))
				state = fmt.Appendf(state[:len(state)-3], `{"role":"assistant","content":"%s %x"},0]}`, strings.Repeat("new words ", 150*size>>19+15), i*15485863)
				start := time.Now()
				_, err := client.Save(ctx, &ckpt.SaveRequest{Agent: fmt.Sprint("a", c), Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state})
				if err != nil {
					t.Error(err)
					return
				}
				mine = append(mine, time.Since(start))
				if len(state) > size*3/2 {
					state = append(state[:first], "0]}"...)
				}
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
	_ = server.Shutdown(context.Background())
	_ = store.Close()
}
