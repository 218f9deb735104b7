//go:build unix

package db_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// childRole makes the test binary play another process that uses the store.
const childRole = "CKPTSIDECAR_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(playChild(role, os.Getenv("CKPTSIDECAR_TEST_DB")))
	}
	if os.Getenv(modelChildPath) != "" { // a test runs this binary again as the process to kill
		os.Exit(m.Run())
	}
	// SQLite in Go has one lock for all memory. With four tests at a time on two
	// processors, a fifth of the processor time goes to waiting for it.
	testenv.Beside(3 * runtime.GOMAXPROCS(0) / 2)
	testenv.Main(m)
}

func playChild(role, path string) int {
	runtime.LockOSThread() // strace counts calls by thread
	if role == "restore" {
		return childRestores(path)
	}
	if role == "backup" {
		return closed(db.Backup(context.Background(), path, path+".backup", nil))
	}
	o := options(path, newClock())
	if role == "locks" {
		o.WriteTimeout = 300 * time.Millisecond
	}
	s, err := db.Open(context.Background(), o)
	if err != nil {
		var operator *db.OperatorError
		fmt.Printf("open %t %t %v\n", errors.As(err, &operator), errors.Is(err, db.ErrLocked), err)
		return 1
	}
	fmt.Println("opened")
	switch role {
	case "hold":
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "chown":
		return childGives(s)
	case "erase":
		return childErases(s)
	case "together":
		childrenSave(s)
	case "save", "locks":
		saves, _ := strconv.Atoi(os.Getenv("CKPTSIDECAR_TEST_SAVES"))
		return childSaves(s, saves)
	}
	return closed(s.Close())
}

// childRestores restores the file "backup" that is next to the database.
func childRestores(path string) int {
	_, err := db.RestoreBackup(context.Background(), filepath.Join(filepath.Dir(path), "backup"), options(path, newClock()), nil, func(done *db.Restored) {
		fmt.Println("kept", done.Kept)
	})
	if err != nil {
		fmt.Println("restore", err)
		return 1
	}
	fmt.Println("restored")
	return 0
}

func closed(err error) int {
	if err != nil {
		fmt.Println("close", err)
		return 1
	}
	return 0
}

// childGives gives all of ann's agents to bob.
func childGives(s *db.Store) int {
	if _, _, err := s.Chown(context.Background(), root, ckpt.ChownRequest{From: ann.Owner, To: bob.Owner}, ""); err != nil {
		fmt.Println("chown", err)
		return 1
	}
	fmt.Println("given")
	return closed(s.Close())
}

// childErases erases the agent gone.
func childErases(s *db.Store) int {
	if _, err := s.Erase(context.Background(), ann, "gone"); err != nil {
		fmt.Println("erase", err)
		return 1
	}
	fmt.Println("erased")
	return closed(s.Close())
}

// childSaves saves and prints the answer to each save, so that the test knows
// what the store has promised.
func childSaves(s *db.Store, saves int) int {
	for i := range saves {
		_, err := s.Save(context.Background(), ann, childSave(i))
		if err != nil {
			fmt.Println(ckpt.AsError(err).OutcomeOrDefault(), i, ckpt.CodeOf(err))
			fmt.Println("because", err)
		} else {
			fmt.Println("saved", i)
		}
		select {
		case <-s.Failed():
			if _, err := s.Save(context.Background(), ann, childSave(i+1)); err == nil {
				fmt.Println("late", i+1)
			}
			fmt.Println("failed")
			return 3
		default:
		}
		if i%4 == 3 {
			s.CopyWAL()
		}
	}
	return closed(s.Close())
}

// childrenSave saves as four clients at the same time.
func childrenSave(s *db.Store) {
	fmt.Println("pid", os.Getpid())
	var wg sync.WaitGroup
	for first := range 4 {
		wg.Go(func() {
			for i := first; i < 12; i += 4 {
				if _, err := s.Save(context.Background(), ann, childSave(i)); err == nil {
					fmt.Println("saved", i)
				}
			}
		})
	}
	wg.Wait()
}

// childSave is the i-th save of a child. Its id is its key.
func childSave(i int) *ckpt.SaveRequest {
	r := request(fmt.Sprintf("agent%d", i%3), ckpt.KindRecovery, fmt.Sprintf(`{"save":%d,"text":"%s"}`, i, strings.Repeat("ab", 1500*(i%3))))
	r.ID = fmt.Sprintf("01900000-0000-7000-8000-%012x", i+1)
	return r
}

// child is a separate process that the test has started.
type child struct {
	*exec.Cmd
	lines *bufio.Scanner
}

// startChild starts the test binary in a role. It uses the wrapper command if
// one is given, and another user if uid is not 0.
func startChild(t testing.TB, role, path string, uid uint32, wrapper ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	if uid != 0 {
		if os.Getuid() != 0 {
			t.Skip("only root may become another user")
		}
		cmd = exec.Command(copyOfSelf(t, self))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	if len(wrapper) > 0 {
		cmd = exec.Command(wrapper[0], append(wrapper[1:], self)...)
	}
	cmd.Env = append(os.Environ(), childRole+"="+role, "CKPTSIDECAR_TEST_DB="+path, "CKPTSIDECAR_TEST_SAVES=12", "GOMAXPROCS=2", "GOCOVERDIR="+coverFolder(t))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return &child{cmd, bufio.NewScanner(out)}
}

// copyOfSelf copies the test binary to a place where every user may run it.
func copyOfSelf(t testing.TB, self string) string {
	t.Helper()
	to := filepath.Join(openFolder(t), "db.test")
	// Another process makes the copy. A file that this process has open for
	// writing is also open in a child that starts at that moment, and a file
	// that is open for writing cannot be run.
	if out, err := tool(t, "cp", self, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, os.Chmod(to, 0o755))
	return to
}

// openFolder returns a folder that every user may enter.
func openFolder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// line returns the child's next line.
func (c *child) line(t testing.TB) string {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatalf("the child said nothing: %v", c.lines.Err())
	}
	return c.lines.Text()
}

// all returns what the child prints until it ends.
func (c *child) all(t testing.TB) []string {
	t.Helper()
	stop := time.AfterFunc(5*time.Minute, func() { _ = c.Process.Kill() })
	defer stop.Stop()
	var lines []string
	for c.lines.Scan() {
		lines = append(lines, c.lines.Text())
	}
	_ = c.Wait()
	return lines
}

// coverFolder is where a child of any user leaves its coverage data, which is
// not counted.
func coverFolder(t testing.TB) string {
	t.Helper()
	dir := openFolder(t)
	must(t, os.Chmod(dir, 0o777))
	return dir
}
