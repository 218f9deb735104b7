//go:build linux || darwin

package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// roleEnv makes the test binary play another process. This gives these tests a
// second user.
const roleEnv = "ENDPOINT_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		testenv.Main(m)
	case "ask":
		fmt.Print(ask(os.Args[1]))
	case "ask anybody":
		fmt.Print(askAnybody(os.Args[1]))
	case "listen":
		playServer(os.Args[1], Options{SingleUser: true, Mode: 0o666})
	case "serve":
		playServer(os.Args[1], Options{Mode: 0o666})
	case "squat":
		playSquatter(os.Args[1])
	case "idmap":
		playMapped(os.Args[1])
	}
}

// ask connects and returns what the server says about this process.
func ask(path string) string {
	c, err := Dial(context.Background(), path)
	return told(c, err)
}

// askAnybody does the same without asking the kernel who listens.
func askAnybody(path string) string {
	c, err := net.Dial("unix", path)
	return told(c, err)
}

func told(c net.Conn, err error) string {
	if err != nil {
		return "dial: " + err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Minute))
	text, err := io.ReadAll(c)
	if errors.Is(err, syscall.ECONNRESET) || err == nil && len(text) == 0 {
		return "closed"
	}
	if err != nil {
		return "read: " + err.Error()
	}
	return string(text)
}

// playMapped prints whether the identity map of a user namespace is sufficient.
func playMapped(path string) {
	fmt.Println("check:", CheckIdentityMap())
	for _, single := range []bool{false, true} {
		l, err := Listen(context.Background(), Options{Path: path, SingleUser: single})
		fmt.Printf("single %v: %v\n", single, err)
		if err == nil {
			_ = l.Close()
		}
	}
}

// playServer is a daemon that serves one listener until it is killed. Its umask
// removes all rights, which affects an ordinary user but not root.
func playServer(path string, o Options) {
	syscall.Umask(0o777)
	o.Path = path
	l, err := Listen(context.Background(), o)
	if err != nil {
		fmt.Println("listen:", err)
		return
	}
	fmt.Println("ready")
	answer(l)
}

// playSquatter listens on a path that it should not use, and prints how much
// each client sent.
func playSquatter(path string) {
	syscall.Umask(0)
	l, err := net.Listen("unix", path)
	if err != nil {
		fmt.Println("listen:", err)
		return
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.(*net.UnixConn).CloseWrite() // a client that trusts this server reads the end and hangs up
		n, _ := io.Copy(io.Discard, c)
		fmt.Println(n, "bytes")
		_ = c.Close()
	}
}

// answer tells each peer its identity.
func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		p, _ := PeerOf(c)
		fmt.Fprint(c, describe(p))
		_ = c.Close()
	}
}

func describe(p Peer) string { return fmt.Sprintf("%s pid:%d admin:%v", p.Owner, p.PID, p.Admin) }

func self(admin bool) string {
	return describe(Peer{Owner: "uid:" + strconv.Itoa(os.Getuid()), PID: os.Getpid(), Admin: admin})
}

// folder returns a folder with a short path, because the names of t.TempDir do
// not fit into sun_path. Other users can open it, because the second user must
// reach the socket.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ep")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listen starts a listener that answers until the test ends.
func listen(t *testing.T, o Options) net.Listener {
	t.Helper()
	l, err := Listen(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go answer(l)
	return l
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to act as several users")
	}
}

// child prepares the test binary in a role, as the given user. It copies the
// binary first, because go test builds it in a folder that is closed to other
// users.
func child(t *testing.T, role, arg string, attr *syscall.SysProcAttr) *exec.Cmd {
	t.Helper()
	bin := filepath.Join(folder(t), "endpoint.test")
	exe, err := os.Executable()
	must(t, err)
	data, err := os.ReadFile(exe)
	must(t, err)
	must(t, os.WriteFile(bin, data, 0o755))
	must(t, os.Chmod(bin, 0o755))
	cmd := exec.Command(bin, arg)
	cmd.Env = []string{roleEnv + "=" + role, "GORACE=atexit_sleep_ms=0"}
	cmd.Dir = "/"
	cmd.SysProcAttr = attr
	cmd.Stderr = os.Stderr
	return cmd
}

// askAs connects as another user and returns what the server said, and the pid.
func askAs(t *testing.T, path string, cred *syscall.Credential) (string, int) {
	t.Helper()
	return playAsker(t, "ask", path, cred)
}

func playAsker(t *testing.T, role, path string, cred *syscall.Credential) (string, int) {
	t.Helper()
	var out strings.Builder
	cmd := child(t, role, path, &syscall.SysProcAttr{Credential: cred})
	cmd.Stdout = &out
	must(t, cmd.Run())
	return out.String(), cmd.Process.Pid
}

func asUser(uid uint32) *syscall.Credential { return &syscall.Credential{Uid: uid, Gid: uid} }
