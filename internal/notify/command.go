package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// start makes one attempt: it runs the program with the notice on its standard input, and with
// almost nothing in its environment. It does not keep the program's output.
func (c *Command) start(ctx context.Context, id, kind string, body []byte) error {
	p := Program{Run: c.Run, Limit: time.Duration(c.Timeout), Stdin: bytes.NewReader(body),
		Environment: []string{"CKPTSIDECAR_NOTICE_ID=" + id, "CKPTSIDECAR_NOTICE_TYPE=" + kind}}
	return p.Start(ctx)
}

// Program is a program of the administrator that the daemon runs.
type Program struct {
	Run         []string
	Limit       time.Duration // it and what it has started are killed after this time
	Stdin       io.Reader
	Stderr      io.Writer
	Environment []string // beside what every program needs
}

// Start runs the program to its end.
func (p *Program) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Run[0], p.Run[1:]...)
	cmd.Stdin, cmd.Stderr = p.Stdin, p.Stderr
	cmd.Dir = os.TempDir()
	cmd.Env = append(environment(), p.Environment...)
	cmd.WaitDelay = time.Second
	inGroup(cmd)
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("the command did not end within %s", ckpt.Duration(p.Limit))
	case errors.As(err, &ended):
		return fmt.Errorf("the command ended: %s", ended.ProcessState)
	}
	return fmt.Errorf("the command cannot be started: %w", err)
}

// environment returns the variables that every program needs.
func environment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ", "TMPDIR", "SystemRoot", "TEMP", "TMP"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
