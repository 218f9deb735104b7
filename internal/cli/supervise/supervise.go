package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
	ckpt "github.com/ckptsidecar/ckptsidecar"
	agent "github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

const (
	healthy    = 10 * time.Minute // after this time, earlier restarts no longer count
	grace      = 10 * time.Second // from asking a child to stop until killing it
	leaseGrace = 2 * time.Second  // the same at most if another host may soon continue the run
	endRetry   = 30 * time.Second // how long to try to report the end of the run to a daemon that is away
	stopRetry  = 5 * time.Second  // the same after exec was asked to stop
	leftLook   = 50 * time.Millisecond
)

func (c *Command) supervisor(a *cli.App) (*supervisor, error) {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if c.Agent == "" {
		c.Agent = a.Env("CKPTSIDECAR_AGENT")
	}
	if err := c.check(a); err != nil {
		return nil, err
	}
	path, err := lookCommand(c.Command[0])
	if err != nil {
		return nil, err
	}
	s := &supervisor{a: a, cmd: c, client: a.Client(), path: path, signals: make(chan os.Signal, 16)}
	sweepExecFolders(os.TempDir(), time.Now())
	if s.folder, s.lock, err = makeExecFolder(); err != nil {
		return nil, err
	}
	s.pauses = c.pauses()
	s.listen()
	return s, nil
}

// pauses returns the pauses before restarts, without an end.
func (c *Command) pauses() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(time.Duration(c.Backoff)),
		backoff.WithMaxInterval(time.Duration(c.MaxBackoff)),
		backoff.WithMultiplier(2),
		backoff.WithMaxElapsedTime(0),
	)
}

// nextPause returns the pause before the next restart. The library's jitter can exceed
// its own limit by half, but no pause may exceed --max-backoff.
func (s *supervisor) nextPause() time.Duration {
	return min(s.pauses.NextBackOff(), time.Duration(s.cmd.MaxBackoff))
}

// listen receives the signals for the child. main stops handling its own signals after
// the second one, which also stops these, so listen registers them again.
func (s *supervisor) listen() {
	signal.Notify(s.signals, forwardedSignals...)
	if s.a.Hurry == nil {
		return
	}
	go func() {
		<-s.a.Hurry
		signal.Notify(s.signals, forwardedSignals...)
	}()
}

func (s *supervisor) close() {
	signal.Stop(s.signals)
	_ = s.lock.Close()
	_ = os.RemoveAll(s.folder)
}

// run makes attempts until one is the last.
func (s *supervisor) run(ctx context.Context) error {
	socket, err := s.endpoint(ctx)
	if err != nil {
		return err
	}
	sender := &agent.Client{Socket: socket, SpoolDir: s.a.Env(agent.EnvSpool), Log: slog.New(slog.DiscardHandler)}
	defer sender.Close()
	s.sender = sender
	for {
		end, err := s.attempt(ctx, socket)
		if err != nil {
			return err
		}
		own := s.reportEnd(ctx, end)
		if !s.goesOn(end, own) {
			return s.last(end)
		}
		s.again = true
		if end.lease { // no fault of the command, and the claim waits for the lease
			s.pauses.Reset()
		} else {
			s.restarts++
		}
		pause := s.nextPause()
		if end.lease {
			s.note("restart", "%s; exec starts it again when this host holds its lease", end.why)
		} else {
			s.note("restart", "%s; restart %d of %d in %s", end.why, s.restarts, s.cmd.MaxRestarts, pause.Round(time.Millisecond))
		}
		if !s.pause(pause) {
			return s.last(end)
		}
	}
}

// endpoint returns where the daemon listens, for the child.
func (s *supervisor) endpoint(ctx context.Context) (string, error) {
	for _, named := range []string{s.a.Socket, s.a.Env("CKPTSIDECAR_SOCKET")} {
		if named != "" {
			return absoluteEndpoint(named)
		}
	}
	st, err := s.client.Status(ctx)
	if err != nil {
		return "", err
	}
	return st.Endpoint, nil
}

// attempt claims the run, starts the child and stays with it until it ends.
func (s *supervisor) attempt(ctx context.Context, socket string) (*outcome, error) {
	c, err := s.newChild()
	if err != nil {
		return nil, err
	}
	plan, err := s.claim(ctx, c.owner())
	for told := ""; err == nil; plan, err = s.claim(ctx, c.owner()) {
		var open []string
		if open, err = s.mayBegin(plan, &told); err != nil || len(open) == 0 {
			break
		}
		if err = s.await(ctx, open); err != nil {
			break
		}
	}
	if err != nil {
		c.abandon()
		return nil, err
	}
	s.epoch = plan.Epoch
	if otherNamespace() {
		if run, err := s.client.Run(ctx, s.ref(nil)); err == nil && run.Epoch == s.epoch {
			c.told = run.PID
		}
	}
	file, err := s.writePlan(plan)
	if err == nil {
		err = c.begin(s.environment(socket, file, plan), s.path, s.cmd.Command)
	}
	if err != nil {
		c.abandon()
		s.end(ctx, endRetry, ckpt.RunInterrupted, "the command could not be started")
		return nil, err
	}
	began := time.Now()
	s.note("start", "%s, %s: run %s of %s, attempt %d, epoch %d, pid %d", s.cmd.Command[0], plan.Verdict, plan.Run, plan.Agent,
		plan.Attempt, plan.Epoch, c.pid())
	end := s.watch(ctx, c)
	end.lived = time.Since(began)
	return end, nil
}

// claim resumes the run. At the first attempt, a daemon must exist, though it may be
// restarting at the moment. Later, claim waits for it, because otherwise nothing would
// start the agent again.
func (s *supervisor) claim(ctx context.Context, owner int) (*ckpt.Plan, error) {
	request := s.cmd.request(owner)
	if s.again {
		request.Force, request.Reason = false, "exec restarts it"
	}
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	told := false
	for began, tries := time.Now(), 1; ; tries++ {
		plan, sent, err := s.resume(ctx, request)
		if err != nil && sent > 0 { // the daemon is there, and much waits for it
			began, tries = time.Now(), 0
			pauses.Reset()
			if !s.pause(pauses.NextBackOff()) {
				return nil, errStopped
			}
			continue
		}
		if wait := s.standsBy(err); wait > 0 {
			if !told {
				s.note("standby", "%s; exec waits", cli.MessageOf(err))
				told = true
			}
			if !s.pause(wait) {
				return nil, &cli.ExitError{Code: cli.ExitTryLater, Message: "stopped while another host had the run"}
			}
			began, tries = time.Now(), 0
			continue
		}
		first := !s.again && !s.cmd.Standby && (tries == 1 && daemon.Unreachable(err) || time.Since(began) > endRetry)
		if err == nil || first || !away(err) {
			return plan, err
		}
		switch {
		case tries > 1:
		case daemon.Unreachable(err):
			s.note("daemon_away", "the daemon is away; exec starts the command when the daemon is back")
		default:
			s.note("daemon_away", "the run cannot be claimed now: %s; exec tries again", cli.MessageOf(err))
		}
		if !s.pause(pauses.NextBackOff()) {
			return nil, &cli.ExitError{Code: cli.ExitTryLater, Message: "stopped while the daemon was away"}
		}
	}
}

// standbyLook is the longest pause between two checks of a standby, because its run can
// be released at any time.
const (
	standbyLook  = 5 * time.Second
	standbyClose = 250 * time.Millisecond // near the end of a lease: the daemon reports whole seconds, rounded up
)

// standsBy returns how long a standby waits before it asks again, 0 if it does not wait.
func (s *supervisor) standsBy(err error) time.Duration {
	var e *ckpt.Error
	if !s.cmd.Standby || !errors.As(err, &e) || e.Code != ckpt.CodeConflict || e.RetryAfter == 0 {
		return 0
	}
	return min(max(e.RetryAfter-time.Second, standbyClose), standbyLook)
}

// resume sends what waits in the spool, and claims the run. It returns how many writes were sent.
func (s *supervisor) resume(ctx context.Context, r ckpt.ResumeRequest) (plan *ckpt.Plan, sent int, err error) {
	part, cancel := context.WithTimeout(ctx, answerMost)
	defer cancel()
	sent, err = s.replay(part)
	if s.asked() {
		return nil, 0, errStopped
	}
	if err != nil {
		return nil, sent, err
	}
	ctx, cancel = context.WithTimeout(ctx, answerMost)
	defer cancel()
	plan, _, err = s.client.Resume(ctx, r)
	return plan, sent, err
}

// answerMost is how long a daemon that hangs can hold up a claim.
const answerMost = time.Minute

var errStopped = &cli.ExitError{Code: cli.ExitTryLater, Message: "stopped while the spooled writes of the run were sent"}

// replay sends what the command has spooled while the daemon was away. After the next
// claim or the end of the run, the daemon would refuse it. It ends soon after exec is asked
// to stop.
func (s *supervisor) replay(ctx context.Context) (sent int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done agent.Replayed
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		done, err = s.sender.ReplayRun(ctx, s.cmd.Agent, s.cmd.InRun)
	}()
	for waits := true; waits; {
		select {
		case <-ended:
			waits = false
		case sig := <-s.signals:
			if asksToStop(sig) {
				s.stopped = time.Now()
				late := time.AfterFunc(stopRetry, func() { cancel(errStopped) })
				defer late.Stop()
			}
		}
	}
	if done.Sent > 0 {
		s.note("replayed", "sent %s from the spool", term.Count(done.Sent, "write"))
	}
	if done.Rejected > 0 {
		s.note("refused", "the daemon refused %s from the spool for good; to see them: ckptsidecar spool list", term.Count(done.Rejected, "write"))
	}
	if err != nil && context.Cause(ctx) == errStopped {
		err = errStopped
	}
	return done.Sent + done.Rejected, err
}

// away reports whether a call failed because no daemon answers at the moment.
func away(err error) bool {
	var e *ckpt.Error
	return daemon.Unreachable(err) || errors.As(err, &e) && (e.Code == ckpt.CodeBusy || e.Code == ckpt.CodeStorageFull ||
		e.Code == ckpt.CodeNotReplicated)
}

// mayBegin returns the prompts that a person must answer first, and prints them once. If exec does not
// wait for answers, or if it is not safe to start, it returns an error. told has the prompts that were
// printed.
func (s *supervisor) mayBegin(plan *ckpt.Plan, told *string) (open []string, err error) {
	code := view.ExitOfVerdict(plan.Verdict)
	if code != view.ExitAsk && code != view.ExitUnsafe {
		return nil, nil
	}
	if plan.Prompt != nil {
		open = append(open, plan.Prompt.ID)
	}
	for i := range plan.UncertainOperations {
		if id := plan.UncertainOperations[i].Prompt; id != "" && !slices.Contains(open, string(id)) {
			open = append(open, string(id))
		}
	}
	if asked := strings.Join(open, " "); asked != *told || asked == "" {
		*told = asked
		if s.a.JSON {
			_ = json.NewEncoder(s.a.Stderr).Encode(view.PlanShapeOf(plan))
		} else {
			view.PlanText(s.a.Stderr, s.a.Err, plan)
		}
	}
	if code == view.ExitUnsafe || s.cmd.OnAsk == onAskExit || len(open) == 0 {
		return nil, &cli.ExitError{Code: code}
	}
	return open, nil
}

// await waits until a person has answered one of the prompts, or the prompt is withdrawn. It returns an
// error if the run is not to go on, or if exec is asked to stop.
func (s *supervisor) await(ctx context.Context, open []string) error {
	s.note("wait", "waits for an answer, and goes on then")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type answer struct {
		prompt *ckpt.Prompt
		err    error
	}
	answers := make(chan answer, len(open))
	for _, id := range open {
		go func() {
			p, err := s.client.WaitPrompt(ctx, id)
			answers <- answer{p, err}
		}()
	}
	for {
		select {
		case got := <-answers:
			switch {
			case got.err != nil:
				return got.err
			case string(got.prompt.Choice) == string(ckpt.ChoiceAbandon):
				return &cli.ExitError{Code: view.ExitAsk, Message: "the run was abandoned: exec does not start its agent"}
			}
			return nil
		case sig := <-s.signals:
			if asksToStop(sig) {
				s.stopped = time.Now()
				return &cli.ExitError{Code: view.ExitAsk, Message: "stopped while the run waits for an answer"}
			}
		}
	}
}

// writePlan writes the plan with its state to a file that only this user can read.
func (s *supervisor) writePlan(plan *ckpt.Plan) (string, error) {
	text, err := json.Marshal(view.PlanShapeOf(plan))
	if err != nil {
		return "", err
	}
	file := filepath.Join(s.folder, "plan.json")
	return file, osfile.Write(file, text, 0o600)
}

// environment returns the environment of this process, with what the agent must know.
func (s *supervisor) environment(socket, file string, plan *ckpt.Plan) []string {
	ours := [][2]string{
		{"CKPTSIDECAR_SOCKET", socket}, {"CKPTSIDECAR_AGENT", plan.Agent}, {"CKPTSIDECAR_RUN", plan.Run},
		{"CKPTSIDECAR_EPOCH", strconv.FormatInt(plan.Epoch, 10)}, {"CKPTSIDECAR_PLAN", file},
	}
	var env []string
next:
	for _, v := range s.a.Environ {
		for _, o := range ours {
			if strings.HasPrefix(v, o[0]+"=") {
				continue next
			}
		}
		env = append(env, v)
	}
	for _, o := range ours {
		env = append(env, o[0]+"="+o[1])
	}
	return env
}

// watch waits for the child: it passes signals on and reacts to the beater.
func (s *supervisor) watch(ctx context.Context, c *child) *outcome {
	end := &outcome{child: c}
	ctx, stop := context.WithCancel(ctx)
	b := &beater{supervisor: s, child: c, news: make(chan news, 1), lastBeat: time.Now()}
	quiet := make(chan struct{})
	go func() {
		b.run(ctx)
		close(quiet)
	}()
	finish := func() *outcome {
		stop()
		<-quiet
		end.beaten = b.lastBeat
		end.lease = end.lease || end.code != 0 && b.lease.over(lease.Boottime()) // the daemon refused its writes before exec stopped it
		if !s.completed(end) || end.fenced || end.frozen {
			c.sweep() // no process of this attempt may run next to the following attempt, here or elsewhere
		}
		return end
	}
	var killAfter, look <-chan time.Time
	for {
		select {
		case state := <-c.ended:
			end.died = time.Now()
			s.read(end, state)
			if !s.asked() && !end.stopped() || !c.left() {
				return finish()
			}
			// A shell ends at once when it is asked to stop. The agent that it has started still finishes its work.
			if killAfter == nil {
				killAfter = time.After(grace)
			}
			ticker := time.NewTicker(leftLook)
			defer ticker.Stop() // the command ends once
			look = ticker.C
		case <-look:
			if !c.left() {
				return finish()
			}
		case sig := <-s.signals:
			s.forward(c, sig)
		case n := <-b.news:
			killAfter = s.react(c, n, end)
		case <-killAfter:
			_ = c.kill()
		}
	}
}

// react handles news. A child that hangs is killed without asking.
func (s *supervisor) react(c *child, n news, end *outcome) <-chan time.Time {
	end.why = n.why
	s.note(n.event, "%s", n.why)
	switch n.event {
	case newsFrozen:
		end.frozen = true
		_ = c.kill()
		return nil
	case newsFenced:
		end.fenced = true
	case newsDrift:
		end.drift = true
	case newsBack:
		end.back = true
	case newsLease:
		end.lease = true
		_ = c.terminate()
		return time.After(n.within)
	}
	_ = c.terminate()
	return time.After(grace)
}

// forward passes a signal on. If a person asks a second time to stop, exec does not wait.
func (s *supervisor) forward(c *child, sig os.Signal) {
	if !asksToStop(sig) {
		_ = c.signal(sig)
		return
	}
	// In the foreground of a terminal, the terminal's keys reach the child directly.
	fromTerminal := !c.group && sig == os.Interrupt
	if !s.stopped.IsZero() && !fromTerminal && !s.fromUser {
		s.note("kill", "received a second request to stop: killing the command")
		_ = c.kill()
		return
	}
	s.stopped, s.fromUser = time.Now(), fromTerminal
	if !fromTerminal {
		_ = c.signal(sig)
	}
}

// asked reports whether exec was asked to stop.
func (s *supervisor) asked() bool {
	return !s.stopped.IsZero() && (!s.fromUser || time.Since(s.stopped) < grace)
}

func (s *supervisor) read(end *outcome, state *os.ProcessState) {
	end.code = exitStatus(state)
	if end.why == "" {
		end.why = "the command ended: " + state.String()
	}
}

// completed reports whether the command did its work, and did not end because it was asked to.
func (s *supervisor) completed(end *outcome) bool {
	return end.code == 0 && !s.asked() && !end.stopped()
}

// reportEnd reports to the daemon how the run ended. It returns whether the agent had
// reported the end itself; in this case, the status stays.
func (s *supervisor) reportEnd(ctx context.Context, end *outcome) (own bool) {
	if end.fenced {
		return true
	}
	completed := s.completed(end)
	limit := endRetry
	if s.asked() {
		limit = stopRetry
	}
	tries := 0
	attempt := func(ctx context.Context) (run *ckpt.Run, sent int, err error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		run, err = retry(ctx, func() (*ckpt.Run, error) {
			tries++
			n, err := s.replay(ctx)
			sent += n
			if err != nil {
				return nil, err
			}
			return s.client.Run(ctx, s.ref(nil))
		})
		return run, sent, err
	}
	run, sent, err := attempt(ctx)
	for err != nil && sent > 0 && !s.asked() { // the daemon is there, and much waits for it
		run, sent, err = attempt(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err == nil && end.code != 0 && run.Lease == ckpt.LeaseLost && run.OnLeaseLost == ckpt.LeaseLostStop {
		end.lease = true
	}
	switch {
	case err != nil:
		s.note("untold", "the end of the run could not be reported to the daemon: %s", cli.MessageOf(err))
		return false
	case run.Epoch < s.epoch: // the next attempt claims the run as it is now
		if !end.back {
			s.note(newsBack, "%s", wentBack(run, s.epoch))
		}
		return false
	case run.Epoch != s.epoch && !s.adopt(end.child, run):
		if run.Epoch > s.epoch && !endedByOwner(run) { // the command has seen it before a heartbeat did
			end.fenced = true
			s.note(newsFenced, "run %s was taken over (epoch %d, by process %d); see: ckptsidecar runs %s", run.Run, run.Epoch, run.PID, run.Agent)
		}
		return true
	case endedByOwner(run):
		return s.staysEnded(ctx, end, run.Status)
	case end.frozen: // timed_out says more
		return false
	}
	switch {
	case completed:
		s.end(ctx, limit, ckpt.RunCompleted, "")
	case tries > 1 && end.died.Sub(end.beaten) < time.Since(end.died):
		// The daemon was away. It will find the run dead, and use its last heartbeat as
		// its end, which is nearer to the truth than now.
	case !s.asked() && s.operatorDecides(ctx):
		_, _ = s.client.Beat(ctx, s.ref(&s.epoch), ckpt.Heartbeat{PID: run.PID}) // its last heartbeat, which must not make it live
	default:
		s.end(ctx, limit, ckpt.RunInterrupted, end.why)
	}
	return false
}

// staysEnded reports whether exec leaves a run as its agent has ended it. A run that was
// interrupted, or that exec itself asked to stop, is to go on.
func (s *supervisor) staysEnded(ctx context.Context, end *outcome, status ckpt.RunStatus) bool {
	switch {
	case !status.Resumable():
		return true
	case end.stopped():
		return false
	case status != ckpt.RunInterrupted: // it waits for something
		return true
	case s.fromUser && s.stopped.After(end.died.Add(-end.lived)): // Ctrl-C interrupted it, however long it took to end
		return true
	}
	if !s.operatorDecides(ctx) {
		return false
	}
	if end.code != 0 {
		s.note("left", "the agent reported that its run is interrupted, and its policy says autoresume: false, so exec does not restart it. "+
			"To go on: %s", ckpt.ExecCommand(s.cmd.Agent, s.cmd.InRun, s.cmd.recorded()))
	}
	return true
}

// operatorDecides reports whether the agent's policy wants a person to look before the
// run continues. In this case, the monitor must find the run dead and ask. A report of
// exec would count as a report of the run itself.
func (s *supervisor) operatorDecides(ctx context.Context) bool {
	policy, err := s.client.Policy(ctx, s.cmd.Agent)
	return err == nil && !policy.Autoresume
}

func (s *supervisor) end(ctx context.Context, limit time.Duration, status ckpt.RunStatus, reason string) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := retry(ctx, func() (*ckpt.Run, error) {
		run, _, err := s.client.EndRun(ctx, s.ref(&s.epoch), ckpt.EndRequest{Status: status, Error: ckpt.Ref(reason)})
		return run, err
	})
	if err != nil {
		s.note("untold", "the status %s of the run could not be reported to the daemon: %s", status, cli.MessageOf(err))
	}
}

// retry repeats a call while no daemon answers.
func retry[T any](ctx context.Context, call func() (T, error)) (T, error) {
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	return backoff.RetryWithData(func() (T, error) {
		v, err := call()
		if err != nil && !away(err) {
			err = backoff.Permanent(err)
		}
		return v, err
	}, backoff.WithContext(pauses, ctx))
}

// goesOn decides whether there is another attempt.
func (s *supervisor) goesOn(end *outcome, own bool) bool {
	switch {
	case end.code == 0 && !end.stopped() && !end.frozen, own, s.fromUser && end.code == 128+int(syscall.SIGINT), s.asked(), s.cmd.Restart == restartNever:
		return false
	}
	if end.lived >= healthy {
		s.restarts = 0
		s.pauses.Reset()
	}
	if !end.lease && s.restarts >= s.cmd.MaxRestarts {
		s.note("give_up", "%s; exec restarted it %s and gave up. To try again: %s",
			end.why, term.Count(s.restarts, "time"), ckpt.ExecCommand(s.cmd.Agent, s.cmd.InRun, s.cmd.recorded()))
		return false
	}
	return true
}

// last returns the exit status of exec itself.
func (s *supervisor) last(end *outcome) error {
	switch {
	case end.fenced:
		return &cli.ExitError{Code: cli.ExitConflict}
	case end.code == 0:
		return nil
	}
	return &cli.ExitError{Code: end.code}
}

// pause waits. It returns false if exec was asked to stop in the meantime.
func (s *supervisor) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case sig := <-s.signals:
			if asksToStop(sig) {
				s.stopped = time.Now()
				return false
			}
		}
	}
}

func (c *Command) Run(ctx context.Context, a *cli.App) error {
	s, err := c.supervisor(a)
	if err != nil {
		return err
	}
	defer s.close()
	term.OutliveReaders()
	return s.run(context.WithoutCancel(ctx)) // signals are forwarded, not obeyed
}
