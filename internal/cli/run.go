package cli

import (
	"context"
	"os"
	"runtime/debug"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// mostHeap is the heap size at which even a process that ends soon collects garbage.
const mostHeap = 256 << 20

// EndsSoon makes a process that ends soon skip garbage collections.
func EndsSoon() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(mostHeap)
}

// NamedAgent returns the agent of the command line or of the environment, or "".
func (a *App) NamedAgent(named string) string {
	if named != "" {
		return named
	}
	return a.Env("CKPTSIDECAR_AGENT")
}

// Ref returns the run that a command is about. If exec started this process for that run,
// the run's epoch comes from the environment.
func (a *App) Ref(agent, run string, epoch *int64) ckpt.RunRef {
	r := ckpt.RunRef{Agent: agent, Run: a.InRun(agent, run), Epoch: epoch}
	if r.Epoch == nil && agent == a.Env("CKPTSIDECAR_AGENT") && r.Run == a.Env("CKPTSIDECAR_RUN") {
		if n, err := strconv.ParseInt(a.Env("CKPTSIDECAR_EPOCH"), 10, 64); err == nil {
			r.Epoch = &n
		}
	}
	return r
}

// RefToRead returns the run that a command only reads. If no run is named and the agent
// has no run main, it is the run that changed last, and the command says so.
func (a *App) RefToRead(ctx context.Context, agent, run string, checks ...error) (ckpt.RunRef, error) {
	r := a.Ref(agent, run, nil)
	if err := Checked(append([]error{r.Check()}, checks...)...); err != nil || r.Run != "" {
		return r, err
	}
	_, err := a.Client().Run(ctx, r)
	if ckpt.CodeOf(err) != ckpt.CodeNotFound {
		return r, err
	}
	page, err := a.Client().Runs(ctx, ckpt.RunFilter{Agent: agent, Limit: 1})
	if err != nil || len(page.Runs) == 0 {
		return r, nil // the call itself reports what is missing
	}
	r.Run = page.Runs[0].Run
	a.Tell("using run %s, the last changed one: %s has no run main", r.Run, agent)
	return r, nil
}

// InRun returns the named run, or else the run for which exec started this process, if it
// belongs to the same agent.
func (a *App) InRun(agent, named string) string {
	if named == "" && agent == a.Env("CKPTSIDECAR_AGENT") {
		return a.Env("CKPTSIDECAR_RUN")
	}
	return named
}

// OwnerPID returns the process that will own a run. A command ends at once, so the script
// that calls it owns the run. At a terminal, that would be a shell, which lives for days
// and does nothing. In this case, OwnerPID returns 0, which means that no owner process
// is known.
func (a *App) OwnerPID(named int) int {
	if named != 0 || a.Interactive {
		return named
	}
	return os.Getppid()
}

// RunFlag returns the flag that names a run, or "" for the run main.
func RunFlag(run string) string {
	if run == "" || run == ckpt.MainRun {
		return ""
	}
	return " --run " + run
}

// Given checks an optional argument.
func Given(s string, check func(string) error) error {
	if s == "" {
		return nil
	}
	return check(s)
}

// OrNone returns a text, or "none" if it is empty.
func OrNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
