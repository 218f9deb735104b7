//go:build linux

package faulttest

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// sessionVariable makes the test program play a session: a store in its own
// process, all on one thread, because strace counts calls by thread. The
// variable holds the database, the first act, the number of acts, and whether
// to print after each act what the database holds.
const sessionVariable = "FAULTTEST_SESSION"

// session is the content of that variable.
type session struct {
	DB     string
	From   int // the first act
	Acts   int // how many acts there are in all
	Digest bool
}

// me is the caller of the session: the user of this process.
var me = ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:" + strconv.Itoa(os.Getuid()), PID: 1}}

// act is one request of an agent to the store. A repeated act must have no
// further effect: it has a key, or is idempotent by itself.
type act func(ctx context.Context, s *db.Store, i int) error

// The acts repeat in this order: saves of three kinds that prune each other
// (small, large and growing ones), steps, operations, events, removals, upkeep.
func init() {
	acts = [...]act{
		saveAct(ckpt.KindRoutine, "small", 0), saveAct(ckpt.KindRoutine, "grown", 1), stepAct, saveAct(ckpt.KindRecovery, "grown", 1),
		beginAct, saveAct(ckpt.KindRoutine, "large", 2), endAct, upkeepAct,
		eventsAct, saveAct(ckpt.KindRoutine, "small", 0), saveAct(ckpt.KindRoutine, "grown", 1), finishAct,
		saveAct(ckpt.KindRoutine, "small", 0), deleteAct, saveAct(ckpt.KindRoutine, "large", 2), upkeepAct,
	}
}

var acts [16]act

func doAct(ctx context.Context, s *db.Store, i int) error { return acts[i%len(acts)](ctx, s, i) }

// saveID is the id of the i-th act of a session if that act is a save.
func saveID(i int) string { return fmt.Sprintf("01900000-0000-7000-8000-%012x", i+1) }

// saveAct saves to its own agent. A grown state is the previous state and more.
// A large state has little in common with any other.
func saveAct(kind ckpt.Kind, agent string, size int) act {
	return func(ctx context.Context, s *db.Store, i int) error {
		text := fmt.Sprintf(`{"act":%d}`, i)
		switch size {
		case 1:
			lines := make([]string, 0, i+200)
			for n := range i + 200 {
				lines = append(lines, fmt.Sprintf(`"message %d is about %x"`, n, n*n*7919))
			}
			text = "[" + strings.Join(lines, ",") + "]"
		case 2:
			text = fmt.Sprintf(`"%x"`, noise(uint64(i), 9000))
		}
		_, err := s.Save(ctx, me, &ckpt.SaveRequest{ID: saveID(i), Agent: agent, Kind: kind, ContentType: ckpt.ContentTypeJSON, State: []byte(text)})
		return err
	}
}

// The acts of a run. Each has a key that includes its round.
func turn(i int) string       { return "turn-" + strconv.Itoa(i/len(acts)) }
func keyOf(i int) string      { return "act-" + strconv.Itoa(i) }
func ofRun(i int) ckpt.RunRef { return ckpt.RunRef{Agent: "worker"} }
func result(i int) ckpt.JSON  { return ckpt.JSON(fmt.Sprintf(`{"turn":%d}`, i/len(acts))) }
func noise(n uint64, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		n = n*6364136223846793005 + 1442695040888963407
		b[i] = byte(n >> 56)
	}
	return b
}

func stepAct(ctx context.Context, s *db.Store, i int) error {
	_, _, err := s.BeginStep(ctx, me, ofRun(i), ckpt.StepRequest{Key: turn(i), Name: "look", IdempotencyKey: keyOf(i)})
	return err
}

func finishAct(ctx context.Context, s *db.Store, i int) error {
	_, _, err := s.FinishStep(ctx, me, ofRun(i), ckpt.StepRequest{Key: turn(i), Status: ckpt.StepSucceeded, Result: result(i), IdempotencyKey: keyOf(i)})
	return err
}

func beginAct(ctx context.Context, s *db.Store, i int) error {
	state := ckpt.JSON(fmt.Sprintf(`{"before":%d,"text":"%x"}`, i, noise(uint64(i), 3000)))
	_, _, err := s.BeginOperation(ctx, me, ofRun(i), ckpt.OperationRequest{Key: turn(i), Name: "push", State: state, IdempotencyKey: keyOf(i)})
	return err
}

func endAct(ctx context.Context, s *db.Store, i int) error {
	_, _, err := s.EndOperation(ctx, me, ofRun(i), ckpt.OperationEnd{Key: turn(i), Status: ckpt.OperationSucceeded, Result: result(i), IdempotencyKey: keyOf(i)})
	return err
}

func eventsAct(ctx context.Context, s *db.Store, i int) error {
	_, _, err := s.Append(ctx, me, ofRun(i), []ckpt.NewEvent{{Type: "said", Payload: result(i)}, {Type: "did"}}, keyOf(i))
	return err
}

// deleteAct removes the recovery checkpoint of its own round.
func deleteAct(ctx context.Context, s *db.Store, i int) error {
	_, err := s.Delete(ctx, me, saveID(i-i%len(acts)+3))
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil // an earlier try removed it, but its answer did not arrive
	}
	return err
}

func upkeepAct(ctx context.Context, s *db.Store, _ int) error {
	_ = s.Upkeep(ctx) // what failed is done next time; nobody waits for it
	return nil
}

// sessionRetention is retention without ages, so that a session has the same
// result at any time.
func sessionRetention(h retention.History, p ckpt.Policy, _ time.Time) []retention.Verdict {
	return retention.Plan(h, p, time.Time{})
}

// playSession is the process of the session. It prints what it is about to do
// and the result. It repeats a refused act a few times. An unknown outcome ends
// the session, as a fail-stop ends a daemon.
func playSession(setting string) error {
	runtime.LockOSThread()
	var set session
	if err := json.Unmarshal([]byte(setting), &set); err != nil {
		return err
	}
	s, err := db.Open(context.Background(), ledger.Options{Path: set.DB, Retention: sessionRetention, Version: "session"})
	if err != nil {
		fmt.Println("closed", oneLine(err))
		return nil
	}
	fmt.Println("opened")
	for i := set.From; i < set.Acts; i++ {
		if err := insist(s, i); err != nil {
			fmt.Println("gave up", i, oneLine(err))
			return nil
		}
		fmt.Println("done", i)
		if set.Digest {
			text, err := digest(set.DB)
			if err != nil {
				return err
			}
			fmt.Println("holds", i, text)
		}
	}
	if err := s.Close(); err != nil {
		fmt.Println("close", oneLine(err))
	}
	fmt.Println("ended")
	return nil
}

// insist repeats an act until it is done, its outcome is unknown, or it has
// been refused five times.
func insist(s *db.Store, i int) error {
	var err error
	for range 5 {
		fmt.Println("try", i)
		if err = doAct(context.Background(), s, i); err == nil {
			return nil
		}
		e := ckpt.AsError(err)
		fmt.Println(e.OutcomeOrDefault(), i, e.Code)
		if e.OutcomeOrDefault() != ckpt.OutcomeNotSaved {
			break
		}
	}
	return err
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }

// digests are the queries whose results are everything that a session can
// leave. Times and what the daemon did for itself are not included.
var digests = []string{
	`SELECT owner, agent, run, seq, kind, size, sha256, pinned, suspect, coalesce(operation, '') FROM audit_checkpoints`,
	`SELECT owner, agent, run, seq, type, payload FROM audit_events`,
	`SELECT owner, agent, run, key, attempt, status, coalesce(result, '') FROM audit_steps`,
	`SELECT owner, agent, run, key, attempt, status, coalesce(result, '') FROM audit_operations`,
	`SELECT agent, run, epoch, attempt, last_seq, removed FROM (SELECT a.name AS agent, r.name AS run, r.epoch, r.attempt, r.last_seq, r.removed FROM runs r JOIN agents a ON a.id = r.agent_id)`,
	`SELECT rule, subject, detail FROM audit_violations`,
}

// digest is a hash of what a database holds. A database that does not exist yet
// counts as empty.
func digest(path string) (string, error) {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return sum(nil)[:16], nil
	}
	pool, err := sql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		return "", err
	}
	defer pool.Close()
	var rows []string
	for n, question := range digests {
		more, err := ask1(pool, question)
		if err != nil && strings.Contains(err.Error(), "no such table") {
			continue // it was killed before it had created any
		}
		if err != nil {
			return "", err
		}
		slices.Sort(more)
		for _, row := range more {
			rows = append(rows, strconv.Itoa(n)+" "+row)
		}
	}
	if os.Getenv("FAULTTEST_ROWS") != "" {
		fmt.Fprintln(os.Stderr, strings.Join(rows, "\n"))
	}
	return sum([]byte(strings.Join(rows, "\n")))[:16], nil
}

// ask1 returns the rows of a query as JSON.
func ask1(pool *sql.DB, question string) (list []string, err error) {
	rows, err := pool.Query(question)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		values, into := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		text, err := json.Marshal(values)
		if err != nil {
			return nil, err
		}
		list = append(list, string(text))
	}
	return list, rows.Err()
}

// golden holds the digest after each act of an undisturbed session. The first
// one is from before any act.
type golden []string

// record plays an undisturbed session.
func record(t *testing.T, path string, acts int) golden {
	t.Helper()
	g := golden{sum(nil)[:16]}
	for _, line := range play(t, session{DB: path, Acts: acts, Digest: true}) {
		if text, is := strings.CutPrefix(line, "holds "); is {
			g = append(g, strings.Fields(text)[1])
		}
	}
	if len(g) != acts+1 {
		t.Fatalf("the undisturbed session said of %d acts what it left, not of %d", len(g)-1, acts)
	}
	return g
}

// play runs a session to its end, inside a wrapper command if one is given, and
// returns its output.
func play(t *testing.T, set session, wrapper ...string) []string {
	t.Helper()
	setting, err := json.Marshal(set)
	must(t, err)
	args := append(slices.Clone(wrapper), os.Args[0])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), sessionVariable+"="+string(setting), "GOMAXPROCS=2")
	out, err := cmd.Output()
	if ctx.Err() != nil {
		t.Errorf("a session did not end in a minute: %q", tail(string(out), 300))
	}
	var lines []string
	text := bufio.NewScanner(strings.NewReader(string(out)))
	for text.Scan() {
		lines = append(lines, text.Text())
	}
	if len(wrapper) == 0 && err != nil {
		var stderr []byte
		if status, ok := err.(*exec.ExitError); ok {
			stderr = status.Stderr
		}
		t.Fatalf("an undisturbed session failed: %v\n%s\n%s", err, strings.Join(lines, "\n"), stderr)
	}
	return lines
}

// progress is how far a session had come when it ended.
type progress struct {
	done    int    // acts that were acknowledged
	unknown bool   // the next act may have been done too
	word    string // the first word of its last line
}

// progressOf reads the output of a session.
func progressOf(from int, lines []string) progress {
	p := progress{done: from}
	for _, line := range lines {
		word, _, _ := strings.Cut(line, " ")
		switch word {
		case "try":
			p.unknown = true
		case "done":
			p.done, p.unknown = p.done+1, false
		case string(ckpt.OutcomeNotSaved):
			p.unknown = false
		case string(ckpt.OutcomeUnknown):
			p.unknown = true
		}
		p.word = line
	}
	return p
}

// acked counts the acts done that promised something to an agent.
func (p progress) acked() int {
	n := 0
	for i := range p.done {
		if i%len(acts)%8 != 7 { // upkeep promises nothing
			n++
		}
	}
	return n
}

// mayHold reports whether a database with this progress may hold this content.
func (g golden) mayHold(p progress, text string) bool {
	return text == g[p.done] || p.unknown && p.done+1 < len(g) && text == g[p.done+1]
}

// copyFiles copies a database that no process has open.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(to), 0o700))
	for _, suffix := range []string{"", "-wal", "-shm", ".failed"} {
		b, err := os.ReadFile(from + suffix)
		if os.IsNotExist(err) {
			continue
		}
		must(t, err)
		must(t, os.WriteFile(to+suffix, b, 0o600))
	}
}
