//go:build unix

package faulttest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"
)

// auditTime is how long the auditors ask under load.
const auditTime = 2 * time.Second

// TestAuditorsUnderLoad is F17: an auditor may open and close the database as
// often as he likes, read-only or not, while clients save. The dangerous moment
// is the close: the last process that closes the database deletes the
// write-ahead log, and an auditor that lost its lock would believe that it is
// the last.
func TestAuditorsUnderLoad(t *testing.T) {
	beside(t)
	auditFor(t, auditTime)
}

func auditFor(t *testing.T, auditTime time.Duration) {
	needSqlite(t)
	d := NewDaemon(t)
	d.Start()
	h, load := NewHistory(), newLoad(t, d, 8)
	load.start(h)
	views := auditViews(t, d)
	wal := inode(t, d.DB+"-wal")

	ctx, cancel := context.WithTimeout(context.Background(), auditTime)
	defer cancel()
	reader := &auditor{args: []string{"-readonly"}, questions: views}
	writer := &auditor{pause: 100 * time.Millisecond, questions: []string{"SELECT count(*) FROM checkpoints"}}
	var wait sync.WaitGroup
	for _, a := range []*auditor{reader, writer} {
		wait.Go(func() { a.ask(ctx, t, d.DB) })
	}
	wait.Wait()
	load.finish()
	count(t, figures{rounds: reader.asked + writer.asked})
	note(t, "in %v %d questions of %d views by sqlite3 -readonly, the slowest %v; plain sqlite3 opened and closed %d times, the slowest %v",
		auditTime, reader.asked, len(views), reader.slowest, writer.asked, writer.slowest)
	if now := inode(t, d.DB+"-wal"); now != wal {
		t.Errorf("the write-ahead log was replaced: inode %d became %d", wal, now)
	}
	h.Check(t, d.Client, load.agents...)
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with exit code %d", code)
	}
	afterwards := &auditor{args: []string{"-readonly"}, questions: views}
	for range views {
		afterwards.next(t, d.DB)
	}
	d.Audit()
	d.Verify()
}

// auditViews returns the questions that an auditor may ask, taken from the
// schema itself.
func auditViews(t *testing.T, d *Daemon) []string {
	t.Helper()
	names, err := sqlite(d.DB, "-readonly", "SELECT name FROM sqlite_schema WHERE type = 'view' AND name LIKE 'audit%' ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	questions := []string{"SELECT count(*), max(n) FROM audit_log"} // a table that is part of the contract
	for name := range strings.FieldsSeq(names) {
		question := "SELECT count(*) FROM " + name
		if name == "audit_states" { // a count alone would not assemble a state
			question = "SELECT count(*), sum(length(state)) FROM (SELECT state FROM audit_states LIMIT 200)"
		}
		questions = append(questions, question)
	}
	if len(questions) < 11 {
		t.Fatalf("only these can be asked: %q", questions)
	}
	return questions
}

// auditor asks with the sqlite3 command, a new process for each question.
type auditor struct {
	args      []string
	questions []string
	pause     time.Duration

	asked   int
	slowest time.Duration
}

func (a *auditor) ask(ctx context.Context, t *testing.T, db string) {
	for ctx.Err() == nil {
		a.next(t, db)
		time.Sleep(a.pause)
	}
}

// next asks the next question. The timeout is the command's own setting. A
// reader of a write-ahead log waits for nobody, except during its recovery.
func (a *auditor) next(t *testing.T, db string) {
	question := a.questions[a.asked%len(a.questions)]
	began := time.Now()
	answer, err := sqlite(db, append(a.args, "-cmd", ".timeout 2000", question)...)
	a.slowest = max(a.slowest, time.Since(began).Round(time.Millisecond))
	a.asked++
	if err != nil {
		t.Errorf("%s: %v", question, err)
	}
	if strings.HasSuffix(question, "audit_violations") && answer != "0" {
		t.Errorf("audit_violations has %s rows", answer)
	}
}
