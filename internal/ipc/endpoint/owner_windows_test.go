package endpoint

import (
	"errors"
	"strings"
	"testing"

	"github.com/Microsoft/go-winio"
)

// TestSquattedPipeIsNotTrusted: a client must neither talk to a pipe that
// belongs to another user nor take it for our daemon. Windows lets only a
// privileged process give a pipe away, so the test works only if it has that
// right, as under Wine.
func TestSquattedPipeIsNotTrusted(t *testing.T) {
	path := pipePrefix + "ckptsidecar-test-squat"
	l, err := winio.ListenPipe(path, &winio.PipeConfig{SecurityDescriptor: "O:WDD:P(A;;GA;;;WD)"})
	if err != nil {
		t.Skipf("cannot make a pipe of another owner: %v", err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	firstContact(path)
	if _, err := Dial(t.Context(), path); err == nil || !strings.Contains(err.Error(), "belongs to S-1-1-0") {
		t.Errorf("Dial = %v, want a refusal that names the owner", err)
	}
	var occupied *OccupiedError
	if _, err := Listen(t.Context(), Options{Path: path}); !errors.As(err, &occupied) {
		t.Errorf("Listen = %v, want an OccupiedError", err)
	}
}
