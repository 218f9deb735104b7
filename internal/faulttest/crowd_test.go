//go:build linux

package faulttest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

func init() {
	addRow("F23", "memory limit, no more descriptors", true, func(t *testing.T) {
		t.Run("descriptors", fewDescriptors)
		t.Run("memory", littleMemory)
	})
	addRow("F27", "2,000 idle clients, slow ones, a large body", true, func(t *testing.T) {
		idle, saves := 2000, 2000
		if isShort() {
			idle, saves = 500, 300
		}
		crowd(t, idle, 50, saves)
	})
}

// fewDescriptors is half of F23: without free descriptors the daemon refuses
// and waits, and it continues when there are some again.
func fewDescriptors(t *testing.T) {
	d := NewDaemon(t, "--set", "limits.owner_connections=3000")
	d.Wrap = []string{"sh", "-c", `ulimit -n 96; exec "$@"`, "sh"}
	d.Start()
	h, load := NewHistory(), newLoad(t, d, 4)
	load.start(h)
	load.reach(20)
	var conns []net.Conn
	for range 200 { // connections beyond the limit wait in the socket's own queue
		if conn, err := net.DialTimeout("unix", d.Socket, time.Second); err == nil {
			conns = append(conns, conn)
		}
	}
	time.Sleep(time.Second)
	most := openFiles(t, d)
	before := load.acked.Load()
	for _, conn := range conns {
		conn.Close()
	}
	load.goesOn(before, "descriptors are there again")
	load.finish()
	note(t, "%d connections with a limit of 96 descriptors: %d open files beside the database, saves went on (%d acknowledged meanwhile)", len(conns), most, before)
	h.Check(t, d.Client, load.agents...)
	count(t, figures{rounds: 1})
	d.Audit()
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with exit code %d", code)
	}
	d.Verify()
}

// memoryGroup makes a cgroup of version 1 or 2 with this memory limit.
func memoryGroup(t *testing.T, limit int64) (procs string) {
	t.Helper()
	needRoot(t, "limit memory")
	for root, file := range map[string]string{"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"} {
		dir := filepath.Join(root, fmt.Sprintf("ckptsidecar-ft-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(limit, 10)), 0o644) == nil {
			return filepath.Join(dir, "cgroup.procs")
		}
	}
	t.Skip("the memory of a process cannot be limited here: there is no memory cgroup")
	return ""
}

// littleMemory is the other half: if the kernel kills the daemon because of its
// memory, no acknowledged save is lost.
func littleMemory(t *testing.T) {
	const limit = 48 << 20
	procs := memoryGroup(t, limit)
	d := NewDaemon(t)
	d.Wrap = []string{"sh", "-c", `echo $$ > "$0"; exec "$@"`, procs}
	d.Start()
	h, load := NewHistory(), newLoad(t, d, 8)
	load.growing, load.most, load.pause = true, 200<<10, 20*time.Millisecond
	load.start(h)
	kills, sent := 0, false
	for began := time.Now(); time.Since(began) < 5*time.Second || kills == 0 && time.Since(began) < 25*time.Second; time.Sleep(20 * time.Millisecond) {
		if !sent && time.Since(began) > 2*time.Second && d.Running() {
			sent = true
			go large(d) // this does not fit
		}
		if !d.Running() {
			kills++
			before := load.acked.Load()
			d.Start()
			load.goesOn(before, "after the kernel had ended the daemon")
		}
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		load.finish()
	}()
	for waiting := true; waiting; { // the requests that were sent last may kill it once more
		select {
		case <-finished:
			waiting = false
		case <-time.After(20 * time.Millisecond):
			if !d.Running() {
				kills++
				d.Start()
			}
		}
	}
	d.Kill()
	d.Wrap = nil // reading everything back takes more memory
	d.Start()
	note(t, "with %d MiB the kernel ended the daemon %d times", limit>>20, kills)
	h.Check(t, d.Client, load.agents...)
	count(t, figures{rounds: 1})
	d.Audit()
	d.Stop()
	d.Verify()
}

// large sends states that are many times the memory of the daemon.
func large(d *Daemon) {
	c := &client.Client{Socket: d.Socket}
	defer c.Close()
	_, _ = c.Save(context.Background(), &ckpt.SaveRequest{Agent: "large", Kind: ckpt.KindRoutine, ContentType: "application/octet-stream", State: noise(1, 60<<20)})
}

// crowd is F27: it measures what the other clients lose when very many
// connections do nothing, some clients send one byte a second, and one client
// sends a gigabyte.
func crowd(t *testing.T, idle, slow, saves int) {
	d := NewDaemon(t, "--set", "limits.owner_connections=4000")
	d.Start()
	c := d.Client()
	files := openFiles(t, d)
	alone := quantiles(t, c, saves)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var conns []net.Conn
	for range idle + slow {
		conn, err := net.Dial("unix", d.Socket)
		must(t, err)
		conns = append(conns, conn)
	}
	dripping(ctx, conns[idle:])
	halfClosed(t, d)
	gone := make(chan string, 1)
	go func() { gone <- gigabyte(d.Socket) }()
	refused := <-gone
	among := quantiles(t, c, saves)
	held := openFiles(t, d)
	cancel()
	for _, conn := range conns {
		conn.Close()
	}
	after := openFiles(t, d)
	for began := time.Now(); after > files+5 && time.Since(began) < 5*time.Second; after = openFiles(t, d) {
		time.Sleep(20 * time.Millisecond)
	}
	_, peak := d.RSS()
	note(t, "%d idle, %d slow: p50 %v alone and %v among them, p99 %v and %v; descriptors %d, %d, %d afterwards; memory at most %.0f MB; 1 GB body: %s",
		idle, slow, alone[0], among[0], alone[1], among[1], files, held, after, float64(peak)/1e6, refused)
	if among[1] > 2*alone[1]+20*time.Millisecond {
		t.Errorf("p99 of a save is %v among them, %v alone", among[1], alone[1])
	}
	if after > files+5 || peak > 1<<30 {
		t.Errorf("%d descriptors afterwards, %d before; %d bytes of memory", after, files, peak)
	}
	count(t, figures{rounds: 1, acked: 2 * saves})
	d.Audit()
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with exit code %d", code)
	}
}

// quantiles returns p50 and p99 of saves that are made one after the other.
func quantiles(t *testing.T, c *client.Client, saves int) [2]time.Duration {
	t.Helper()
	times := make([]time.Duration, saves)
	for i := range times {
		r := newSave(t, "agent-0")
		began := time.Now()
		_, err := c.Save(context.Background(), r)
		must(t, err)
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return [2]time.Duration{times[saves/2].Round(10 * time.Microsecond), times[saves*99/100].Round(10 * time.Microsecond)}
}

// halfClosed: a client that has sent everything and closed its writing end
// still gets its answer.
func halfClosed(t *testing.T, d *Daemon) {
	t.Helper()
	replies, err := raw(d.Socket, post(`{"kind":"routine","state":1}`), 1, true)
	if err != nil || len(replies) != 1 || replies[0].StatusCode != 201 {
		t.Errorf("a half-closed client got %v, %v", replies, err)
	}
}

// gigabyte sends a body that no limit allows and returns how the request ended.
func gigabyte(socket string) string {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	go func() {
		head := "POST " + saveTarget + "?kind=routine HTTP/1.1\r\nHost: d\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
		_, err := io.WriteString(conn, head)
		chunk := append([]byte("100000\r\n"), append(bytes.Repeat([]byte("x"), 1<<20), "\r\n"...)...)
		for n := 0; n < 1024 && err == nil; n++ {
			_, err = conn.Write(chunk)
		}
	}()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	line := make([]byte, 60)
	n, err := conn.Read(line)
	if err != nil {
		return err.Error()
	}
	first, _, _ := bytes.Cut(line[:n], []byte("\r\n"))
	return string(first)
}
