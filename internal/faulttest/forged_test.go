//go:build linux

package faulttest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func init() {
	addRow("F30", "stored rows changed by sqlite3 under load", true, func(t *testing.T) {
		rounds := 6
		if isShort() {
			rounds = 2
		}
		t.Run("pieces under load", func(t *testing.T) { damagedPieces(t, rounds) })
		t.Run("the last intact one", TestDamageWhileItRuns)
		t.Run("rows", forgedRows)
		t.Run("the end of the log", cutLog)
		t.Run("an older copy", olderCopy)
	})
}

// forge changes stored data with the sqlite3 command while the daemon runs. It drops the triggers that forbid the
// change and creates them again, all in one transaction. It returns the lines that the statements print.
func (d *Daemon) forge(t *testing.T, statements string) []string {
	t.Helper()
	drop, err := sqlite(d.DB, "-readonly", `SELECT group_concat('DROP TRIGGER ' || name || ';', char(10)) FROM sqlite_schema WHERE type = 'trigger'`)
	must(t, err)
	again, err := sqlite(d.DB, "-readonly", `SELECT group_concat(sql || ';', char(10)) FROM sqlite_schema WHERE type = 'trigger'`)
	must(t, err)
	cmd := exec.Command("sqlite3", "-bail", "-cmd", ".timeout 10000", d.DB)
	cmd.Stdin = strings.NewReader("BEGIN IMMEDIATE;\n" + drop + "\n" + statements + ";\n" + again + "\nCOMMIT;\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("sqlite3: %v: %s", err, out)
	}
	return strings.Fields(string(out))
}

// breakNewest changes two bytes of the newest piece of each run's newest checkpoint, and prints the ids of all
// checkpoints that contain such a piece.
const breakNewest = `
CREATE TEMP TABLE broken AS
	SELECT c.run_id AS run, CAST(json_extract(c.pieces, '$[#-1][0]') AS INTEGER) AS segment FROM checkpoints c
	WHERE c.pieces IS NOT NULL AND c.seq = (SELECT max(seq) FROM checkpoints WHERE run_id = c.run_id);
UPDATE segments SET data = CAST(substr(data, 1, 40) || x'ffff' || substr(data, 43) AS BLOB) WHERE id IN (SELECT segment FROM broken);
SELECT DISTINCT c.id FROM checkpoints c JOIN broken b ON b.run = c.run_id, json_each(c.pieces) p
	WHERE c.pieces IS NOT NULL AND json_extract(p.value, '$[0]') = b.segment;
DROP TABLE broken`

// damagedPieces is F30 under load: the test repeatedly changes pieces of the newest states while clients save. All
// saves are acknowledged and read back, except those whose own pieces were changed, which are refused.
func damagedPieces(t *testing.T, rounds int) {
	needSqlite(t)
	d, h := NewDaemon(t), NewHistory()
	d.Start()
	load := newLoad(t, d, 6)
	load.growing, load.most = true, 60<<10
	load.start(h)
	hit := map[string]bool{}
	for round := range rounds {
		load.reach(load.acked.Load() + 150)
		ids := d.forge(t, breakNewest)
		before := load.acked.Load()
		if len(ids) == 0 {
			t.Fatalf("round %d: nothing was hit", round)
		}
		for _, id := range ids {
			hit[id] = true
		}
		load.goesOn(before, "damage")
	}
	load.reach(load.acked.Load() + 150)
	load.finish()
	if n := h.Sum(); n.Acked != n.Saves || n.Retried > 0 {
		t.Errorf("of %d saves %d were acknowledged, and %d were sent again", n.Saves, n.Acked, n.Retried)
	}
	refused := h.checkDamaged(t, d, hit, load.agents...)
	note(t, "%d checkpoints had a changed piece, %d of them were refused, and none of the others", len(hit), refused)
	d.saysDamaged(t, refused)
	count(t, figures{rounds: rounds, points: refused})
	d.wantProblems(t, "damaged")
}

// checkDamaged is Check for a history of which the test damaged some checkpoints: each of those is refused as
// corrupt or read back whole. It returns how many are refused.
func (h *History) checkDamaged(t *testing.T, d *Daemon, hit map[string]bool, agents ...string) (refused int) {
	t.Helper()
	found, err := readBack(d.Client, agents)
	must(t, err)
	for i := range found {
		if s := &found[i]; hit[s.ID] && strings.Contains(s.Read, "damaged") {
			s.Read = s.SHA256
			refused++
		}
	}
	for _, p := range h.problems(found) {
		t.Error(p)
	}
	count(t, figures{acked: h.Sum().Acked, lost: len(missing(h.list(), found))})
	if refused == 0 {
		t.Error("no damage was noticed")
	}
	return refused
}

// saysDamaged checks that everything that reports damage reports this number of checkpoints: the status, the
// readiness probe, the metrics, doctor, and the auditors' view.
func (d *Daemon) saysDamaged(t *testing.T, checkpoints int) {
	t.Helper()
	st, err := d.Client().Status(t.Context())
	must(t, err)
	if st.Database.Damaged != int64(checkpoints) || (st.State == "degraded") != (checkpoints > 0) {
		t.Errorf("the status is %s with %d damaged checkpoints, not %d: %v", st.State, st.Database.Damaged, checkpoints, st.Problems)
	}
	var ready struct {
		State    string
		Problems []string
	}
	code, body := d.get(t, "/readyz")
	if err := json.Unmarshal(body, &ready); err != nil || code != http.StatusOK || ready.State != st.State || (len(ready.Problems) > 0) != (checkpoints > 0) {
		t.Errorf("readyz answers %d: %s", code, body)
	}
	_, body = d.get(t, "/metrics")
	if want := fmt.Sprintf("ckptsidecar_damaged_checkpoints %d\n", checkpoints); !strings.Contains(string(body), want) {
		t.Errorf("the metrics do not say %q:\n%s", want, regexp.MustCompile(`(?m)^.*damaged.*$`).FindAll(body, -1))
	}
	out, err := d.command("--socket", d.Socket, "doctor").CombinedOutput()
	if failed := regexp.MustCompile(`(?m)^FAIL +daemon .*degraded`).Match(out); failed != (checkpoints > 0) || failed && err == nil {
		t.Errorf("doctor says %v:\n%s", err, out)
	}
	rows, err := sqlite(d.DB, "-readonly", `SELECT count(*) FROM audit_violations WHERE rule = 'damaged'`)
	if err != nil || rows != fmt.Sprint(checkpoints) {
		t.Errorf("audit_violations names %s damaged checkpoints, not %d: %v", rows, checkpoints, err)
	}
}

// get sends a request to the daemon as curl does.
func (d *Daemon) get(t *testing.T, path string) (code int, body []byte) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
	}}}
	resp, err := c.Get("http://d" + path)
	must(t, err)
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, body
}

// wantProblems stops the daemon and checks that verify reports problems with each of the words.
func (d *Daemon) wantProblems(t *testing.T, words ...string) {
	t.Helper()
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with exit code %d", code)
	}
	out, err := d.command("verify", "--db", d.DB).CombinedOutput()
	if err == nil {
		t.Errorf("verify finds nothing: %s", out)
	}
	for _, word := range words {
		if !strings.Contains(string(out), word) {
			t.Errorf("verify does not say %q:\n%s", word, tail(string(out), 3000))
		}
	}
}

// TestDamageWhileItRuns is F30 with the default policy of every agent: the two newest of three states are damaged
// while the daemon runs. The intact state stays until enough other intact ones exist, and a run goes back to an
// intact one. When the damaged states have been removed, the daemon reports no damage any more.
func TestDamageWhileItRuns(t *testing.T) {
	beside(t)
	needSqlite(t)
	d := NewDaemon(t)
	d.Start()
	c := d.Client()
	var said conversation
	random := newRand(t, 1)
	states := map[string]string{} // by id
	save := func() *ckpt.Saved {
		r := newSave(t, "agent-0")
		r.State = said.grow(random, r.ID, 1<<20)
		saved, err := c.Save(t.Context(), r)
		must(t, err)
		states[saved.ID] = sum(r.State)
		return saved
	}
	for range 20 {
		save()
	}
	hit := d.forge(t, breakNewest)
	list, err := listAll(c, ckpt.CheckpointFilter{Agent: "agent-0"})
	must(t, err)
	intactBefore := 0
	for _, ck := range list { // from here on the daemon knows about the damage
		if _, err := c.State(t.Context(), ck.ID); err == nil {
			intactBefore++
		}
	}
	d.saysDamaged(t, len(list)-intactBefore)
	keep := ckpt.DefaultPolicy().RoutineKeep
	for n := 1; n <= keep+2; n++ {
		saved := save()
		list, err := listAll(c, ckpt.CheckpointFilter{Agent: "agent-0"})
		must(t, err)
		intact := 0
		for _, ck := range list {
			state, err := c.State(t.Context(), ck.ID)
			switch {
			case err == nil && sum(state) == states[ck.ID]:
				intact++
			case ckpt.CodeOf(err) != ckpt.CodeCorrupt || !slices.Contains(hit, ck.ID):
				t.Errorf("%s, number %d: %v", ck.ID, ck.Seq, err)
			}
		}
		if want := min(keep, intactBefore+n); intact != want {
			t.Errorf("after %d saves %d intact checkpoints are there, not %d", n, intact, want)
		}
		plan, _, err := c.Resume(t.Context(), ckpt.ResumeRequest{Agent: "agent-0", DryRun: true})
		must(t, err)
		if plan.Checkpoint == nil || plan.Checkpoint.ID != saved.ID {
			t.Errorf("after %d saves a resume goes back to %v: %v", n, plan.Checkpoint, plan.Reasons)
		}
	}
	left, err := listAll(c, ckpt.CheckpointFilter{Agent: "agent-0"})
	must(t, err)
	for _, ck := range left {
		if slices.Contains(hit, ck.ID) {
			_, err := c.Delete(t.Context(), ck.ID)
			must(t, err)
		}
	}
	d.saysDamaged(t, 0)
	count(t, figures{rounds: 1, acked: len(states)})
	d.Audit()
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with exit code %d", code)
	}
	d.Verify()
}

// forgedRows changes rows so that each row is valid by itself. Saves continue, and verify names every change.
func forgedRows(t *testing.T) {
	needSqlite(t)
	d, h := NewDaemon(t), NewHistory()
	d.Start()
	load := newLoad(t, d, 4)
	keepAll(t, d.Client(), "forged")
	load.start(h)
	forgeries := []string{
		`body = CAST('{"forged":1}' AS BLOB), size = 12, sha256 = '` + sum([]byte(`{"forged":1}`)) + `'`,
		`kind = 'recovery'`, `created_at = '2020-01-01T00:00:00.000Z'`, `labels = '{"a":"forged"}'`, `metadata = '{"a":"forged"}'`,
		`parent = NULL`, `pinned = 1`,
	}
	var ids []string
	for range len(forgeries) + 1 {
		r := newSave(t, "forged")
		_, err := d.Client().Save(t.Context(), r)
		must(t, err)
		ids = append(ids, r.ID)
	}
	for i, forgery := range forgeries {
		before := load.acked.Load()
		d.forge(t, fmt.Sprintf(`UPDATE checkpoints SET %s WHERE id = '%s'`, forgery, ids[i+1]))
		load.goesOn(before, "a forgery")
	}
	load.finish()
	h.Check(t, d.Client, load.agents...)
	count(t, figures{rounds: 1, points: len(forgeries)})
	d.wantProblems(t, ids[1:]...)
}

// cutLog removes rows from the end of the audit log while the daemon runs, and moves the head of the log back to
// match. The daemon ends itself. The next daemon saves and reports what it found.
func cutLog(t *testing.T) {
	needSqlite(t)
	d, h := NewDaemon(t), NewHistory()
	d.Start()
	load := newLoad(t, d, 4)
	load.start(h)
	load.reach(100)
	d.forge(t, `DELETE FROM acts WHERE n > (SELECT n - 5 FROM audit_head)`)
	code, err := d.Wait(startTime)
	if err != nil || code != exitFault || !strings.Contains(d.Log(), "its audit log ends with row") && !strings.Contains(d.Log(), "changed the audit log") {
		t.Errorf("exit code %d, %v, not %d with a word about the log", code, err, exitFault)
	}
	before := load.acked.Load()
	d.Start()
	load.goesOn(before, "after the restart")
	load.finish()
	h.Check(t, d.Client, load.agents...)
	st, err := d.Client().Status(t.Context())
	must(t, err)
	if said := strings.Join(st.Problems, "\n"); st.State != "degraded" || !strings.Contains(said, "audit log") {
		t.Errorf("the status is %s: %s", st.State, said)
	}
	count(t, figures{rounds: 1})
	d.wantProblems(t, "audit_row")
}

// olderCopy replaces the database of the daemon with an older copy. The daemon ends itself, and the next one
// reports what it found.
func olderCopy(t *testing.T) {
	needSqlite(t)
	d := NewDaemon(t)
	d.Start()
	save := func() {
		_, err := d.Client().Save(t.Context(), newSave(t, "agent-0"))
		must(t, err)
	}
	save()
	older := d.DB + ".older"
	_, err := sqlite(d.DB, "-readonly", ".backup "+older)
	must(t, err)
	for range 5 {
		save()
	}
	d.Stop() // the stop records how the log ends
	d.Start()
	for _, suffix := range []string{"-wal", "-shm"} {
		must(t, os.Remove(d.DB+suffix))
	}
	must(t, os.Rename(older, d.DB))
	if code, err := d.Wait(startTime); err != nil || code != exitFault {
		t.Errorf("exit code %d, %v, not %d", code, err, exitFault)
	}
	d.Start()
	save()
	st, err := d.Client().Status(t.Context())
	must(t, err)
	if said := strings.Join(st.Problems, "\n"); st.State != "degraded" || !strings.Contains(said, "an older copy was put back") {
		t.Errorf("the status is %s: %s", st.State, said)
	}
	count(t, figures{rounds: 1})
	d.Stop()
}
