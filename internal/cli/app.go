package cli

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/itchyny/gojq"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/program"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// Flags are the flags of the whole program.
type Flags struct {
	Socket string `help:"The daemon's socket or pipe. Default: $$CKPTSIDECAR_SOCKET; else your own daemon's, then the system's. One that is named is the only one tried." placeholder:"PATH"`
	Owner  string `help:"Act on the agents of this owner, for example uid:1000, or * for everybody's. For administrators." placeholder:"ID"`
	JSON   bool   `name:"json" help:"Write JSON instead of text for people."`
	Quiet  bool   `short:"q" help:"Write ids only, one on each line."`
	Wide   bool   `help:"Show tables in full width: whole ids, every column, exact times."`
	Color  string `enum:"auto,always,never" default:"auto" help:"Color the text: ${color_when}." placeholder:"WHEN"`
	Format string `help:"${template}" placeholder:"TEMPLATE"`
	JQ     string `name:"jq" help:"Write the results of this jq expression on the JSON, one a line: '.checkpoints[].id'." placeholder:"EXPRESSION"`
}

// ReasonFlag is the flag with the reason for an action.
type ReasonFlag struct {
	Reason string `help:"Why, for the audit log." placeholder:"TEXT"`
}

// App is what every command gets: its process, so that tests can simulate one, and the
// flags of the whole program. Stdout and Stderr escape characters that control a
// terminal; see Data for output that must not change.
type App struct {
	*Flags
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Env            daemon.Environment
	Environ        []string        // the whole environment, for child processes
	Interactive    bool            // stdin is a person's terminal
	Hurry          <-chan struct{} // closed when a person asks a second time to stop
	Version        string          // of this program
	StatusMost     time.Duration   // how long Status waits for an answer; 0 for statusMost
	Out            *term.Style     // the style of Stdout
	Err            *term.Style     // the style of Stderr

	connect    sync.Once
	connection *client.Client
	template   *template.Template // from --format
	jq         *gojq.Code         // from --jq
	jsonErrors bool               // --json was given
}

// Client returns the one connection of this command. Commands do not retry by themselves:
// exit code 75 tells a script that it can try again.
func (a *App) Client() *client.Client {
	a.connect.Do(func() { a.connection = &client.Client{Socket: a.Socket, Owner: a.Owner} })
	return a.connection
}

// Another returns one more connection, which the caller must close.
func (a *App) Another() *client.Client { return &client.Client{Socket: a.Socket, Owner: a.Owner} }

// statusMost is how long Status waits for an answer. A daemon that works needs milliseconds.
const statusMost = 10 * time.Second

// Status returns the daemon's status. The error is a *SilentError if the daemon does not answer in time.
func (a *App) Status(ctx context.Context) (*ckpt.Status, error) {
	most := cmp.Or(a.StatusMost, statusMost)
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	s, err := a.Client().Status(limited)
	until, _ := limited.Deadline()
	// A connection can time out shortly before the context does.
	if err != nil && !time.Now().Before(until) && ctx.Err() == nil {
		return nil, &SilentError{most}
	}
	return s, err
}

// Data returns the stream for JSON and states: the unchanged standard output. On a
// terminal, control characters are escaped, which changes no value in JSON.
func (a *App) Data() io.Writer {
	if a.Out.Terminal {
		return a.Stdout
	}
	return term.Raw(a.Stdout)
}

// Log returns the stream for the daemon's log.
func (a *App) Log() io.Writer {
	if a.Err.Terminal {
		return a.Stderr
	}
	return term.Raw(a.Stderr)
}

// Read reads a file, or standard input for "-".
func (a *App) Read(ctx context.Context, name string) ([]byte, error) {
	if name != "-" {
		return os.ReadFile(name)
	}
	if a.Interactive {
		a.Tell("reading from the keyboard; end it with Ctrl-D")
	}
	return Stoppable(ctx, func() ([]byte, error) { return io.ReadAll(a.Stdin) })
}

// Stoppable waits for something that may never happen, such as input from a person. If
// ctx ends first, it returns, and wait continues in the background.
func Stoppable[T any](ctx context.Context, wait func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := wait()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// Tell writes a message in addition to the result.
func (a *App) Tell(format string, args ...any) { term.Printf(a.Stderr, format+"\n", args...) }

// Progress shows the progress of long work. The unit is term.ByBytes, a noun, or "" for a
// percentage only.
func (a *App) Progress(what, unit string) *term.Progress {
	p := term.NewProgress(a.Stderr, a.Err, what)
	p.Unit = unit
	return p
}

// Agrees asks a person a yes-or-no question.
func (a *App) Agrees(question string) bool {
	term.Printf(a.Stderr, "%s", question)
	line, _ := bufio.NewReader(a.Stdin).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

// Again returns a command that runs this program as a child process, without the settings
// in its environment.
func (a *App) Again(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := program.Self(a.Environ)
	if err != nil {
		return nil, err
	}
	return self.Command(ctx, args...), nil
}

// StartDaemon starts a daemon for this command only and waits until it is ready.
func (a *App) StartDaemon(ctx context.Context, dir string) (*program.Daemon, error) {
	self, err := program.Self(a.Environ)
	if err != nil {
		return nil, err
	}
	return self.StartDaemon(ctx, dir)
}
