package console

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// init plays another user's program: its exit code says whether it got an
// answer.
func init() {
	address := os.Getenv("CONSOLE_TEST_CONNECT")
	if address == "" {
		return
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		os.Exit(3)
	}
	_, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: " + address + "\r\n\r\n"))
	if n, _ := c.Read(make([]byte, 100)); n > 0 {
		os.Exit(0)
	}
	os.Exit(4)
}

// TestAnotherUsersConnection starts a real program with another uid.
func TestAnotherUsersConnection(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start programs of another user")
	}
	s := serve(t, Options{})
	// The test program is in a folder that only its own user can enter, so a
	// copy is used.
	folder, err := os.MkdirTemp("/tmp", "console")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := folder + "/play"
	if err := os.WriteFile(program, self, 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // others start it
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(s.address)
	for _, address := range []string{s.address, "[::1]:" + port, "localhost:" + port} {
		if strings.HasPrefix(address, "[") && s.second == nil {
			continue
		}
		for uid, want := range map[uint32]int{0: 0, 1002: 4} {
			play := exec.Command(program)
			play.Env = []string{"CONSOLE_TEST_CONNECT=" + address}
			play.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			_ = play.Run()
			if got := play.ProcessState.ExitCode(); got != want {
				t.Errorf("%s: a program of uid %d ends with %d, want %d", address, uid, got, want)
			}
		}
	}
}

const procTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 100 0 0 10 0
   1: 0100007F:A001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1002        0 101 1 0 20 4 30 10 -1
   2: 0100007F:1F90 0100007F:A001 01 00000000:00000000 00:00000000 00000000     0        0 102 1 0 20 4 30 10 -1
   3: 0100007F:A002 0100007F:1F90 04 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   4: 0100007F:A003 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   5: 0000000000000000FFFF00000100007F:A004 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1003        0 103 1
`

// TestFindUID reads a table of a little-endian machine, with connections that
// their programs have closed. Older kernels report those as root's.
func TestFindUID(t *testing.T) {
	ours := netip.MustParseAddrPort("127.0.0.1:8080")
	for port, want := range map[string]int{"40961": 1002, "40962": -1, "40963": -1, "40964": 1003, "40965": -1} {
		uid, ok := findUID([]byte(procTable), netip.MustParseAddrPort("127.0.0.1:"+port), ours)
		if !ok {
			uid = -1
		}
		if uid != want {
			t.Errorf("port %s is of %d, want %d", port, uid, want)
		}
	}
}
