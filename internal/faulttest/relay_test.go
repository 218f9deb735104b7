//go:build unix

package faulttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// relayVariable makes the test's own program play another user. It holds the
// path of the socket.
const relayVariable = "CKPT_FAULTTEST_RELAY"

// ask is one request that a user makes.
type ask struct {
	Method, Path, ContentType string
	Body                      []byte
}

// answer is what the user got back.
type answer struct {
	Status      int
	ContentType string
	Body        []byte
	Err         string
}

// relay makes the requests that it reads, one per line, and writes the answers.
func relay(in io.Reader, out io.Writer) int {
	client := unixClient(os.Getenv(relayVariable))
	answers := json.NewEncoder(out)
	for asks := json.NewDecoder(in); ; {
		var a ask
		if err := asks.Decode(&a); err != nil {
			return 0 // the test has ended
		}
		if err := answers.Encode(a.make(client)); err != nil {
			return 1
		}
	}
}

// unixClient speaks plain HTTP over a socket, without any of our client code.
func unixClient(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
}

func (a ask) make(client *http.Client) answer {
	r, err := http.NewRequest(a.Method, "http://daemon"+a.Path, bytes.NewReader(a.Body))
	if err != nil {
		return answer{Err: err.Error()}
	}
	if a.ContentType != "" {
		r.Header.Set("Content-Type", a.ContentType)
	}
	resp, err := client.Do(r)
	if err != nil {
		return answer{Err: err.Error()}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{Err: err.Error()}
	}
	return answer{Status: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"), Body: body}
}

// user is a process with another identity.
type user struct {
	t       *testing.T
	Owner   string
	asks    *json.Encoder
	answers *json.Decoder
}

// newUser starts such a process. It needs a copy of the test's program, because
// the go command keeps the original where other users cannot reach it.
func newUser(t *testing.T, d *Daemon, uid, gid uint32) *user {
	t.Helper()
	cmd := exec.Command(relayProgram(t, d))
	cmd.Env = []string{relayVariable + "=" + d.Socket}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // it ends because its input has ended
	})
	return &user{t: t, Owner: fmt.Sprintf("uid:%d", uid), asks: json.NewEncoder(in), answers: json.NewDecoder(out)}
}

func relayProgram(t *testing.T, d *Daemon) string {
	t.Helper()
	path := filepath.Join(d.Dir, "relay")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Another process makes the copy. A file that this process has open for
	// writing is also open in a child that starts at that moment, and a file
	// that is open for writing cannot be run.
	if out, err := exec.Command("cp", self, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, os.Chmod(path, 0o755))
	return path
}

// do makes a request as the user.
func (u *user) do(a ask) answer {
	u.t.Helper()
	var got answer
	if err := u.asks.Encode(a); err != nil {
		u.t.Fatal(err)
	}
	if err := u.answers.Decode(&got); err != nil {
		u.t.Fatal(err)
	}
	if got.Err != "" {
		u.t.Fatalf("%s %s as %s: %s", a.Method, a.Path, u.Owner, got.Err)
	}
	return got
}

func (u *user) get(path string) answer { return u.do(ask{Method: http.MethodGet, Path: path}) }

// read makes a request that must succeed and reads its JSON.
func (u *user) read(a ask, v any) {
	u.t.Helper()
	got := u.do(a)
	if got.Status/100 != 2 {
		u.t.Fatalf("%s %s as %s: %d %s", a.Method, a.Path, u.Owner, got.Status, got.Body)
	}
	if err := json.Unmarshal(got.Body, v); err != nil {
		u.t.Fatal(err)
	}
}
