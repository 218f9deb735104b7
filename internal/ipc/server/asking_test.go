package server

import (
	"context"
	"net"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// TestAskingEndsWithTheClientAndAtStop: if a client goes away, only the
// preparation of its save ends, not the save itself. A stop of the daemon does
// the same.
func TestAskingEndsWithTheClientAndAtStop(t *testing.T) {
	for name, leave := range map[string]func(w *world, c net.Conn){
		"the client goes away": func(_ *world, c net.Conn) { _ = c.Close() },
		"the daemon stops": func(w *world, _ net.Conn) {
			go func() { _ = w.server.Shutdown(context.Background()) }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			began, ended := make(chan struct{}), make(chan error, 1)
			w.store.onSave = func(ctx context.Context, _ *ckpt.SaveRequest) error {
				asking, cancel := ckpt.Asking(ctx)
				defer cancel()
				if err := asking.Err(); err != nil {
					ended <- err
					return nil
				}
				close(began)
				<-asking.Done()
				ended <- ctx.Err()
				return ckpt.Errorf(ckpt.CodeBusy, "nobody asks any more")
			}
			c := w.dial()
			body := `{"kind":"routine","state":1}`
			_, err := c.Write([]byte("POST /v1/agents/a/checkpoints HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " +
				itoa(len(body)) + "\r\n\r\n" + body))
			expect.OK(t, err)
			<-began
			leave(w, c)
			if err := <-ended; err != nil {
				t.Errorf("the context of the save ended too: %v", err)
			}
			if log := w.log.String(); strings.Contains(log, "panic") {
				t.Error(log)
			}
		})
	}
}
