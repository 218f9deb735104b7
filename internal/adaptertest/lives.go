package adaptertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Numbers is how many numbers a program of KilledLives counts. It is more than the
// lives that are killed can count.
const Numbers = 12

// Note adds a line to the file of notes, and waits until the test says that the
// program may go on. A program of KilledLives notes "effect N" before it adds the
// number N to its session, "kept N" after that, and another line at its end.
func Note(notes, line string) {
	file, err := os.OpenFile(notes, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if _, err := fmt.Fprintln(file, line); err != nil {
		panic(err)
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // in the last life there is nothing to read: it does not wait
}

// KilledLives runs a program that counts in a session. It is killed six times, and once
// its daemon is; then it may end. No number may be added again that was kept, and
// the last note must be end. The program's arguments are the socket and the file of notes.
func KilledLives(t *testing.T, d *Daemon, program, end string) {
	t.Helper()
	l := &lives{t: t, d: d, program: program, notes: filepath.Join(d.Dir, "notes")}
	for i := range 6 {
		l.oneKilled(i, 1+i%3)
	}
	Must(t, l.command().Run())
	seen := l.lines()
	for n := 1; n <= Numbers; n++ {
		kept := slices.Index(seen, fmt.Sprint("kept ", n))
		last := -1
		for i, line := range seen {
			if line == fmt.Sprint("effect ", n) {
				last = i
			}
		}
		if last < 0 || kept >= 0 && last > kept {
			t.Errorf("number %d: the last effect is line %d, and it was kept in line %d:\n%s", n, last, kept, strings.Join(seen, "\n"))
		}
	}
	if seen[len(seen)-1] != end { // the last "kept" may be missing: the program was killed before it said so
		t.Errorf("the program is not done:\n%s", strings.Join(seen, "\n"))
	}
}

type lives struct {
	t              *testing.T
	d              *Daemon
	program, notes string
}

func (l *lives) lines() []string {
	text, _ := os.ReadFile(l.notes)
	return strings.Split(string(text), "\n")[:strings.Count(string(text), "\n")]
}

func (l *lives) command() *exec.Cmd {
	cmd := exec.Command(os.Args[0], l.program, l.d.Socket(), l.notes)
	cmd.Stderr = os.Stderr
	return cmd
}

// oneKilled starts the program, and kills it while it does what follows some notes. In
// the fifth life the daemon is killed too, between the first two notes.
func (l *lives) oneKilled(life, notes int) {
	l.t.Helper()
	from, cmd := len(l.lines()), l.command()
	goOn, err := cmd.StdinPipe()
	Must(l.t, err)
	Must(l.t, cmd.Start())
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	for more := 1; more <= notes; more++ {
		for len(l.lines()) < from+more {
			select {
			case err := <-exited:
				l.t.Fatalf("life %d ended by itself: %v\n%s", life, err, strings.Join(l.lines(), "\n"))
			case <-time.After(time.Millisecond):
			}
		}
		if life == 4 && more == 1 {
			l.d.Kill()
			l.d.Start()
		}
		_, _ = goOn.Write([]byte{'\n'})
	}
	_ = cmd.Process.Kill()
	<-exited
}
