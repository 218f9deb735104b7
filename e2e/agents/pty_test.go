//go:build linux

package agents

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// terminal is a product on a pseudo terminal.
type terminal struct {
	w    *world
	end  *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	text strings.Builder
}

// interactive starts it, and waits until it takes input.
func (w *world) interactive() *terminal {
	w.Helper()
	end, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	expect.OK(w, err)
	expect.OK(w, unix.IoctlSetPointerInt(int(end.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(end.Fd()), unix.TIOCGPTN)
	expect.OK(w, err)
	expect.OK(w, unix.IoctlSetWinsize(int(end.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}))
	other, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	expect.OK(w, err)
	defer other.Close()
	start := map[hook.Product][2]string{
		hook.ClaudeCode: {w.claude(), "--dangerously-skip-permissions"},
		hook.Codex:      {filepath.Join(modules(), ".bin/codex"), "--dangerously-bypass-hook-trust"},
		hook.Gemini:     {filepath.Join(modules(), ".bin/gemini"), "--yolo"},
	}
	s := &terminal{w: w, end: end, cmd: exec.Command(start[w.product][0], start[w.product][1])}
	s.cmd.Dir, s.cmd.Env, s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = w.proj, w.environ(), other, other, other
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	expect.OK(w, s.cmd.Start())
	w.Cleanup(func() {
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		_ = s.cmd.Wait()
		_ = end.Close()
	})
	go func() {
		part := make([]byte, 64<<10)
		for {
			n, err := end.Read(part)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.text.Write(part[:n])
			s.mu.Unlock()
			if strings.Contains(string(part[:n]), "\x1b[6n") { // Codex asks where the cursor is
				_, _ = end.WriteString("\x1b[1;1R")
			}
		}
	}()
	expect.Soon(w, "it takes input", func() bool {
		if w.product == hook.Codex {
			return s.has("Ask Codex")
		}
		return len(w.begun()) > 0
	})
	s.quiet()
	return s
}

// has reports whether the screen has shown a word since it began.
func (s *terminal) has(word string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), word)
}

// quiet waits until nothing has been drawn for a moment: then it takes input. Some always draw something.
func (s *terminal) quiet() {
	before := -1
	for range 10 {
		s.mu.Lock()
		now := s.text.Len()
		s.mu.Unlock()
		if now == before {
			return
		}
		before = now
		time.Sleep(500 * time.Millisecond)
	}
}

func (s *terminal) send(keys string) {
	_, err := s.end.WriteString(keys)
	expect.OK(s.w, err)
}

// enter types a line as a person does: what comes at once counts as pasted.
func (s *terminal) enter(line string) {
	s.quiet()
	for _, key := range line {
		s.send(string(key))
		time.Sleep(20 * time.Millisecond)
	}
	s.quiet()
	s.send("\r")
}

// leave ends the session, and waits for that.
func (s *terminal) leave() {
	s.w.Helper()
	s.enter(map[bool]string{true: "/exit", false: "/quit"}[s.w.product == hook.ClaudeCode])
	_ = s.cmd.Wait()
}
