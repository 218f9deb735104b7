package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// start makes one attempt: it runs the program with the notice on its standard input, and with
// almost nothing in its environment. It does not keep the program's output.
func (c *Command) start(ctx context.Context, id, kind string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.Timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Run[0], c.Run[1:]...)
	cmd.Stdin = bytes.NewReader(body)
	cmd.Dir = os.TempDir()
	cmd.Env = append(environment(), "CKPTSIDECAR_NOTICE_ID="+id, "CKPTSIDECAR_NOTICE_TYPE="+kind)
	cmd.WaitDelay = time.Second
	inGroup(cmd)
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("the command did not end within %s", c.Timeout)
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
