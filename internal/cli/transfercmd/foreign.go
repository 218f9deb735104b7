package transfercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/foreign"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// maxForeignBytes is the maximum size of the files that one import keeps in memory.
const maxForeignBytes = 1 << 30

// foreignReport is the result of an import of foreign files.
type foreignReport struct {
	Format   foreign.Format    `json:"format"`
	DryRun   bool              `json:"dry_run"`
	Runs     []foreignRun      `json:"runs"`
	Problems []foreign.Problem `json:"problems"`
}

// The outcomes of a run.
const (
	foreignImported = "imported"
	foreignPlanned  = "would_import" // in a dry run
	foreignPresent  = "present"      // it existed already
	foreignFailed   = "failed"
)

type foreignRun struct {
	Agent       string              `json:"agent"`
	Run         string              `json:"run"`
	Outcome     string              `json:"outcome"`
	Status      ckpt.RunStatus      `json:"status"`
	Sources     []string            `json:"sources"`
	Checkpoints []foreignCheckpoint `json:"checkpoints"`
	Steps       int                 `json:"steps"`
	Events      int                 `json:"events"`
	Pruned      []string            `json:"pruned"` // checkpoints that the agent's policy does not keep
	Notes       []string            `json:"notes"`
	Error       string              `json:"error,omitempty"`
}

type foreignCheckpoint struct {
	ID   string `json:"id"`
	Size int    `json:"size"`
}

// mover imports foreign runs, one after another.
type mover struct {
	a       *cli.App
	options foreign.Options
	report  foreignReport
	stopped error // why the remaining runs were not tried
	failed  bool  // something was refused
}

// readFiles reads formats in which several files can belong to one run.
func (m *mover) readFiles(ctx context.Context, names []string) error {
	var files []foreign.File
	left := int64(maxForeignBytes)
	for _, name := range names {
		data, err := m.readFile(ctx, name, min(foreign.MaxState, left))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && left < foreign.MaxState:
			m.tell(foreign.Problem{File: name, Message: fmt.Sprintf("%v; one import reads at most %s: import the rest separately",
				err, term.Bytes(maxForeignBytes)), Refused: true})
		case err != nil:
			m.tell(foreign.Problem{File: name, Message: err.Error(), Refused: true})
		default:
			left -= int64(len(data))
			files = append(files, foreign.File{Name: name, Data: data})
		}
	}
	convert := foreign.Snapshots
	if m.report.Format == foreign.StatementCheckpoint {
		convert = foreign.Statements
	}
	return m.take(ctx, convert(files, m.options))
}

// readFile reads a regular file, or standard input, up to a maximum size.
func (m *mover) readFile(ctx context.Context, name string, most int64) ([]byte, error) {
	from := m.a.Stdin
	if name != "-" {
		info, err := os.Stat(name)
		switch {
		case err != nil:
			return nil, errors.Unwrap(err)
		case !info.Mode().IsRegular():
			return nil, errors.New("it is not a regular file")
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, errors.Unwrap(err)
		}
		defer f.Close()
		from = f
	}
	data, err := cli.Stoppable(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(from, most+1)) })
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return data, err
}

// readFolders reads folders of loops. It reads nothing outside a folder, even if links
// point there.
func (m *mover) readFolders(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := m.readFolder(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (m *mover) readFolder(ctx context.Context, name string) error {
	root, err := os.OpenRoot(name)
	if err != nil {
		m.tell(foreign.Problem{File: name,
			Message: fmt.Sprintf("%v: name the folder that contains .running and .history", errors.Unwrap(err)), Refused: true})
		return nil
	}
	defer root.Close()
	loops, problems := foreign.FindLoops(root.FS())
	within := func(list []foreign.Problem) []foreign.Problem {
		for i := range list {
			list[i].File = filepath.Join(name, list[i].File)
		}
		return list
	}
	for _, p := range within(problems) {
		m.tell(p)
	}
	for _, l := range loops {
		r := foreign.ReadLoop(root.FS(), l, m.options)
		within(r.Problems)
		if err := m.take(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// tell reports a problem, at once if the output is for people.
func (m *mover) tell(p foreign.Problem) {
	m.report.Problems = append(m.report.Problems, p)
	m.failed = m.failed || p.Refused
	if !m.a.JSON {
		m.a.Tell("%s", p)
	}
}

// take imports the runs that were read. It returns an error only if the command was
// stopped. Errors of a run are reported with the run.
func (m *mover) take(ctx context.Context, r foreign.Result) error {
	for _, p := range r.Problems {
		m.tell(p)
	}
	for i := range r.Plans {
		if m.stopped != nil {
			return nil
		}
		m.move(ctx, &r.Plans[i])
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// move imports one run and reports it.
func (m *mover) move(ctx context.Context, p *foreign.Plan) {
	r := foreignRun{
		Agent: p.Agent, Run: p.Run, Status: p.End.Status, Outcome: foreignPlanned, Sources: p.Sources,
		Steps: len(p.Steps), Events: len(p.Events), Pruned: []string{}, Notes: append([]string{}, p.Notes...),
	}
	for _, s := range p.Saves {
		r.Checkpoints = append(r.Checkpoints, foreignCheckpoint{s.ID, len(s.State)})
	}
	if !m.report.DryRun {
		if err := m.send(ctx, p, &r); err != nil {
			r.Outcome, r.Error, m.failed = foreignFailed, cli.MessageOf(err), true
			if cli.ExitCode(err) == cli.ExitTryLater {
				m.stopped = err
			}
		}
	}
	m.report.Runs = append(m.report.Runs, r)
	if !m.a.JSON {
		m.say(&r)
	}
}

func (m *mover) say(r *foreignRun) {
	a := m.a
	what := fmt.Sprintf("%s, %s, %s, %s", r.Status, term.Count(len(r.Checkpoints), "checkpoint"), term.Count(r.Steps, "step"),
		term.Count(r.Events, "event"))
	word := map[string]string{
		foreignImported: a.Out.Green("imported:"), foreignPlanned: "would import:", foreignPresent: "is there already:",
		foreignFailed: a.Out.Red("not imported:"),
	}[r.Outcome]
	term.Printf(a.Stdout, "%s run %s of %s  %s  from %s\n", word, a.Out.Bold(r.Run), r.Agent, what, sourcesText(r.Sources))
	if r.Error != "" {
		a.Tell("  %s", r.Error)
		return
	}
	for _, note := range r.Notes {
		term.Printf(a.Stdout, "  %s\n", note)
	}
	if n := len(r.Pruned); n > 0 {
		term.Printf(a.Stdout, "  %s pruned: the agent's policy does not keep more (routine_keep; `ckptsidecar policy set "+
			"%s routine_keep=N` before an import)\n", term.Count(n, "checkpoint"), r.Agent)
	}
	if r.Outcome == foreignImported {
		if r.Status.Resumable() {
			term.Printf(a.Stdout, "  to go on: %s; %s\n", ckpt.ExecCommand(r.Agent, r.Run, nil), ckpt.CommandUnknown)
		} else {
			term.Printf(a.Stdout, "  its state: ckptsidecar restore %s%s\n", r.Agent, cli.RunFlag(r.Run))
		}
	}
}

func sourcesText(sources []string) string {
	const most = 3
	if len(sources) <= most {
		return strings.Join(sources, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(sources[:most], ", "), len(sources)-most)
}

// send imports a run completely or not at all, unless it exists already.
func (m *mover) send(ctx context.Context, p *foreign.Plan, r *foreignRun) error {
	from, to := io.Pipe()
	go func() { _ = to.CloseWithError(p.Export(to, m.options.Owner, time.Now())) }()
	report, err := m.a.Client().Import(ctx, ckpt.ImportRequest{}, from)
	_ = from.Close()
	if err != nil {
		return err
	}
	if report.RunsPresent > 0 {
		r.Outcome, r.Notes = foreignPresent, []string{}
		return nil
	}
	r.Outcome = foreignImported
	r.Pruned = append(r.Pruned, report.Pruned...)
	return nil
}

// idOwner distinguishes the ids of one user's imports from another's. It need
// not be the daemon's name for the user, but must always be the same.
func idOwner(a *cli.App) string {
	if a.Owner != "" {
		return a.Owner
	}
	if u, err := user.Current(); err == nil {
		return "uid:" + u.Uid
	}
	return "uid:" + strconv.Itoa(os.Getuid())
}

// processLives reports whether a process with this id exists.
func processLives(pid int) bool { return !osfile.ProcessIsGone(pid) }
