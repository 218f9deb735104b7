//go:build unix

package faulttest

import (
	"context"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// TestSlowClients is a small form of F27: idle connections, and clients that
// send one byte a second, do not slow the other clients down.
func TestSlowClients(t *testing.T) {
	beside(t)
	const idle, slow, saves = 300, 20, 300
	d := NewDaemon(t)
	d.Start()
	c := d.Client()
	files := openFiles(t, d)
	alone := median(t, c, saves)
	var crowd []net.Conn
	for range idle + slow {
		conn, err := net.Dial("unix", d.Socket)
		must(t, err)
		crowd = append(crowd, conn)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dripping(ctx, crowd[idle:])
	among := median(t, c, saves)
	held := openFiles(t, d)
	cancel()
	for _, conn := range crowd {
		conn.Close()
	}
	after := openFiles(t, d)
	for began := time.Now(); after > files+5 && time.Since(began) < slack(5*time.Second); after = openFiles(t, d) {
		time.Sleep(20 * time.Millisecond)
	}
	_, peak := d.RSS()
	t.Logf("p50 of a save: %v alone, %v among %d idle and %d slow clients; open files %d, %d, %d afterwards; memory at most %.0f MB",
		alone, among, idle, slow, files, held, after, float64(peak)/1e6)
	if *matrix != "" && among > 5*alone+20*time.Millisecond {
		t.Errorf("a save takes %v among slow clients, %v alone", among, alone)
	}
	if after > files+5 {
		t.Errorf("%d files are open after the crowd has gone, %d before (I8)", after, files)
	}
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with exit code %d", code)
	}
}

// dripping makes each client send one byte a second, and waits until all have
// begun.
func dripping(ctx context.Context, conns []net.Conn) {
	var begun sync.WaitGroup
	for _, conn := range conns {
		begun.Add(1)
		go drip(ctx, conn, begun.Done)
	}
	begun.Wait()
}

// drip sends a save that never ends, one byte a second.
func drip(ctx context.Context, conn net.Conn, begun func()) {
	text := "POST " + saveTarget + " HTTP/1.1\r\nHost: d\r\n" + isJSON + "Content-Length: 1000\r\n\r\n"
	_, _ = io.WriteString(conn, text[:len(text)/2]) // the daemon may close its connection, which is right
	for i := len(text) / 2; ctx.Err() == nil; i++ {
		_, _ = conn.Write([]byte{text[min(i, len(text)-1)]})
		if i == len(text)/2 {
			begun()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// median returns the median time of saves that are made one after the other.
func median(t *testing.T, c *client.Client, saves int) time.Duration {
	t.Helper()
	times := make([]time.Duration, saves)
	for i := range times {
		r := newSave(t, "agent-0")
		began := time.Now()
		if _, err := c.Save(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return times[saves/2].Round(time.Microsecond)
}

// openFiles counts the file descriptors of the daemon, without those of the database: it opens connections to that when it
// first needs them.
func openFiles(t *testing.T, d *Daemon) (n int) {
	t.Helper()
	dir := "/proc/" + strconv.Itoa(d.PID()) + "/fd/"
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Skipf("the open files of a process cannot be counted here: %v", err)
	}
	for _, file := range list {
		if target, _ := os.Readlink(dir + file.Name()); !strings.HasPrefix(target, d.DB) {
			n++
		}
	}
	return n
}
