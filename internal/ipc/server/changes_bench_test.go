//go:build unix

package server_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// BenchmarkSave measures what a save of a growing JSON state costs in processor
// time, client and daemon together. On a machine with shared cores, elapsed
// time says little. go test -run xxx -bench BenchmarkSave ./internal/ipc
func BenchmarkSave(b *testing.B) {
	for _, size := range []int{64 << 10, 512 << 10} {
		for _, clients := range []int{1, 16} {
			for _, form := range []string{"whole", "change"} {
				b.Run(fmt.Sprintf("%dKiB/%d/%s", size>>10, clients, form), func(b *testing.B) {
					benchmarkSave(b, size, clients, form == "whole")
				})
			}
		}
	}
}

func benchmarkSave(b *testing.B, size, clients int, whole bool) {
	socket := startDaemon(b, ledger.Options{Secrets: secrets.Scan{}})
	var wg, ready sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	begin := make(chan struct{})
	ready.Add(clients)
	for c := range clients {
		wg.Go(func() {
			client := &client.Client{Socket: socket, Whole: whole}
			defer client.Close()
			s := newGrowing(size, c)
			save := func() {
				_, err := client.Save(context.Background(), &ckpt.SaveRequest{Agent: fmt.Sprint("a", c), Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: s.next()})
				if err != nil {
					b.Error(err)
				}
			}
			for range 5 { // the first state is sent whole, and only the last three stay
				save()
			}
			ready.Done()
			<-begin
			for left.Add(-1) >= 0 && !b.Failed() {
				save()
			}
		})
	}
	ready.Wait()
	b.ResetTimer()
	before := processorTime(b)
	close(begin)
	wg.Wait()
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
	b.StopTimer()
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
