package faulttest

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestHalfSentHeaders: one owner begins a thousand requests with headers that never end. They take little memory,
// other clients get answers meanwhile, and the memory is released when the connections are gone.
func TestHalfSentHeaders(t *testing.T) {
	beside(t)
	const most, each = 1000, 250_000
	d := NewDaemon(t)
	d.Start()
	before, _ := d.RSS()
	head := []byte("PUT /v1/agents/a/checkpoints/x HTTP/1.1\r\nHost: x\r\nCkpt-Metadata: " + strings.Repeat("m", each))
	var conns []net.Conn
	var all sync.WaitGroup
	for range most {
		conn, err := net.DialTimeout("unix", d.Socket, 10*time.Second)
		must(t, err)
		conns = append(conns, conn)
		all.Go(func() {
			_ = conn.SetWriteDeadline(time.Now().Add(20 * time.Second))
			for sent := 0; sent < len(head); {
				n, err := conn.Write(head[sent:min(sent+16<<10, len(head))])
				if sent += n; err != nil {
					return // it was refused
				}
			}
		})
	}
	all.Wait()
	during, _ := d.RSS()
	c := d.Client()
	if _, err := c.Save(t.Context(), &ckpt.SaveRequest{Agent: "other", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON,
		Metadata: []byte(`{"m":"` + strings.Repeat("m", 3000) + `"}`), State: []byte("1")}); err != nil {
		t.Errorf("a save meanwhile: %v", err)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	const little = 40 << 20
	after := during
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if after, _ = d.RSS(); after < before+little {
			break
		}
	}
	_, peak := d.RSS()
	note(t, "%d half-sent headers of %d kB: memory %d MB before, %d MB with them, %d MB at most, %d MB afterwards", most, each/1000,
		before>>20, during>>20, peak>>20, after>>20)
	// Without a bound they take over 600 MB. With one they take 100 to 190 MB, which depends on when garbage is
	// collected.
	if peak > before+300<<20 {
		t.Errorf("%d half-sent headers took %d MB", most, (peak-before)>>20)
	}
	if after >= before+little {
		t.Errorf("%d MB of them are held afterwards", (after-before)>>20)
	}
}
