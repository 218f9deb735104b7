package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

var routine = ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: "text/plain", State: []byte("state")}

func TestZeroClientFindsTheDaemon(t *testing.T) {
	w := newWorld(t)
	t.Setenv(endpoint.EnvSocket, w.path)
	var c client.Client
	defer c.Close()
	expect.OK(t, c.Health(t.Context()))
}

// TestAStaleConnectionIsReplaced: the daemon closes idle connections. A client
// that saves after that must not notice.
func TestAStaleConnectionIsReplaced(t *testing.T) {
	w := newWorld(t, limits(Limits{IdleTimeout: 20 * time.Millisecond}))
	for range 5 {
		_, err := w.client.Save(t.Context(), &routine)
		expect.OK(t, err)
		waitFor(t, func() bool { return w.server.Stats().Connections == 0 })
	}
	expect.Equal(t, "saved", w.stored("a")[0].Seq, 5)
}

func TestOneConnection(t *testing.T) {
	w := newWorld(t)
	done := make(chan error)
	for range 20 {
		go func() {
			_, err := w.client.Save(context.Background(), &routine)
			done <- err
		}()
	}
	for range 20 {
		expect.OK(t, <-done)
		if n := w.server.Stats().Connections; n > 1 {
			t.Fatalf("%d connections", n)
		}
	}
}

func TestAnExportDelaysNothing(t *testing.T) {
	w := newWorld(t)
	w.save("a", `1`)
	expect.OK(t, w.client.Export(t.Context(), "a", writerFunc(func(p []byte) (int, error) {
		_, err := w.client.Save(t.Context(), &routine)
		return len(p), err
	})))
}

func TestNoProxyFromTheEnvironment(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	w := newWorld(t)
	expect.OK(t, w.client.Health(t.Context()))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func BenchmarkPut(b *testing.B) {
	for _, size := range []int{2 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) { benchmarkPut(b, size) })
	}
}

// discard acknowledges every save and keeps nothing.
type discard struct{ nowhere }

func (discard) Memory(size int) []byte { return make([]byte, size) }

var discarded = &ckpt.Saved{Checkpoint: ckpt.Checkpoint{
	ID: id1, Agent: "a", Owner: "uid:1000", Run: "main", Seq: 17, Kind: ckpt.KindRoutine, Parent: id2, Size: 2048, StoredSize: 900,
	SHA256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", ContentType: "application/json",
	CreatedAt: ckpt.At(time.UnixMilli(1700000000000)), Metadata: []byte("{}"),
}, Pruned: []string{id1}}

func (discard) Save(context.Context, ckpt.Scope, *ckpt.SaveRequest) (*ckpt.Saved, error) {
	return discarded, nil
}

func benchmarkPut(b *testing.B, size int) {
	dir, err := os.MkdirTemp("", "ipc")
	expect.OK(b, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	ln, err := endpoint.Listen(b.Context(), endpoint.Options{Path: path, SingleUser: true})
	expect.OK(b, err)
	s := NewServer(Options{Store: StoreOf(discard{})})
	go s.Serve(context.Background(), ln)
	defer s.Shutdown(context.Background())
	c, err := net.Dial("unix", path)
	expect.OK(b, err)
	defer c.Close()
	// A raw connection instead of a client, so that only the server is
	// measured.
	request := fmt.Appendf(nil, "PUT %s/%s?kind=routine&run=r1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", saves, id1, size)
	request = append(request, make([]byte, size)...)
	answer := make([]byte, 4096)
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for b.Loop() {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(answer); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkClientSave(b *testing.B) {
	dir, err := os.MkdirTemp("", "ipc")
	expect.OK(b, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	ln, err := endpoint.Listen(b.Context(), endpoint.Options{Path: path, SingleUser: true})
	expect.OK(b, err)
	s := NewServer(Options{Store: StoreOf(discard{})})
	go s.Serve(context.Background(), ln)
	defer s.Shutdown(context.Background())
	c := &client.Client{Socket: path}
	defer c.Close()
	r := routine
	r.State = make([]byte, 2048)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Save(b.Context(), &r); err != nil {
			b.Fatal(err)
		}
	}
}
