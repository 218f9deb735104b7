//go:build linux

package faulttest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

func init() { addRow("F36", "killed between a commit and its second step", true, secondSteps) }

const secondCanary = "canary-of-what-is-erased"

// secondSteps kills the daemon at many moments after a request arrived that has a second step beside its commit. The next start, or the same
// request again, finishes what was begun. What was erased is then in no file, and what was not is whole.
func secondSteps(t *testing.T) {
	needSqlite(t)
	from := filepath.Join(t.TempDir(), "data")
	d := NewDaemon(t, "--set", "backup.interval=0s")
	d.DB = filepath.Join(from, "ckpt.db")
	d.Start()
	for i := range 8 {
		for _, agent := range []string{"gone", "kept"} {
			r := newSave(t, agent)
			r.Kind, r.ContentType = ckpt.KindRecovery, "application/octet-stream"
			r.State = append(noise(uint64(i), 200_000), secondCanary+agent...) // what cannot be deflated is stored as it is
			_, err := d.Client().Save(t.Context(), r)
			must(t, err)
		}
	}
	d.Stop()
	if text, err := os.ReadFile(d.DB); err != nil || bytes.Count(text, []byte(secondCanary+"gone")) < 8 {
		t.Fatalf("the text is not in the file as it is: %v", err)
	}
	const newOwner = "uid:61002"
	requests := map[string]func(c *client.Client) error{
		"chown": func(c *client.Client) error {
			_, _, err := client.Operator{Client: c}.Chown(t.Context(), ckpt.ChownRequest{From: me.Caller.Owner, To: newOwner, Agent: "gone", Reason: "moved"}, "chown-gone")
			return err
		},
		"archive": func(c *client.Client) error {
			_, err := c.ArchiveAudit(t.Context(), ckpt.ArchiveRequest{Before: ckpt.Time{Time: time.Now()}})
			return err
		},
		"erase": func(c *client.Client) error { _, err := c.Erase(t.Context(), "gone"); return err },
		"run delete": func(c *client.Client) error {
			_, err := c.DeleteRun(t.Context(), ckpt.RunRef{Agent: "gone"}, false)
			return err
		},
		"run clear": func(c *client.Client) error {
			_, err := c.ClearRun(t.Context(), ckpt.RunRef{Agent: "gone"})
			return err
		},
	}
	kills := []time.Duration{0, 1, 2, 3, 5, 8, 12, 17, 25, 35, 50, 70, 100}
	if isShort() {
		kills = []time.Duration{2, 8, 25}
	}
	const days = 9 * 24 * time.Hour
	later := (&fastClock{began: time.Now().Add(-days), factor: 2}).build(t) // rows must be old before they are archived
	begun := 0
	for name, ask := range requests {
		for _, after := range kills {
			x := NewDaemon(t, "--set", "backup.interval=0s")
			x.DB = filepath.Join(x.Dir, "data", "ckpt.db")
			must(t, run("cp", "-a", from, filepath.Dir(x.DB)))
			if name == "archive" {
				x.Program = later
			}
			x.Start()
			done := make(chan error, 1)
			c := x.Client()
			go func() { done <- ask(c) }()
			time.Sleep(after * time.Millisecond)
			x.Kill()
			acknowledged := <-done == nil
			x.Start()
			there, err := sqlite(x.DB, "-readonly", `SELECT count(*) FROM audit_checkpoints WHERE agent = 'gone'`)
			must(t, err)
			erases := name != "chown" && name != "archive"
			switch {
			case erases && acknowledged && there != "0":
				t.Errorf("%s, killed after %d ms: acknowledged, and %s checkpoints are there", name, after, there)
			case !erases && there != "8":
				t.Errorf("%s, killed after %d ms: of 8 checkpoints %s are there", name, after, there)
			}
			if erases && there != "8" || !erases && secondStepBegan(t, x, name, newOwner) {
				begun++
			}
			owed, err := sqlite(x.DB, "-readonly", `SELECT count(*) FROM scrub_owed`)
			must(t, err)
			if owed != "0" {
				t.Errorf("%s, killed after %d ms: after the start %s erasures are owed", name, after, owed)
			}
			if name == "erase" && there == "0" {
				wantNowhere(t, x, after)
			}
			if err := ask(x.Client()); err != nil && (!erases || ckpt.CodeOf(err) != ckpt.CodeNotFound) {
				t.Errorf("%s, killed after %d ms, again: %v", name, after, err)
			}
			switch {
			case name == "erase":
				wantNowhere(t, x, after)
			case !erases && !secondStepBegan(t, x, name, newOwner):
				t.Errorf("%s, killed after %d ms, again: nothing came of the second request", name, after)
			}
			kept, err := sqlite(x.DB, "-readonly", `SELECT count(*) FROM audit_checkpoints WHERE agent = 'kept'`)
			if err != nil || kept != "8" {
				t.Errorf("%s, killed after %d ms: the other agent has %s checkpoints: %v", name, after, kept, err)
			}
			x.Stop()
			x.Verify()
			if name == "archive" {
				if out, err := x.command("verify", "--db", x.DB, "--archives", filepath.Join(filepath.Dir(x.DB), "audit")).CombinedOutput(); err != nil {
					t.Errorf("killed after %d ms: verify of the archives: %v\n%s", after, err, tail(string(out), 3000))
				}
			}
			x.cleanUp()
			count(t, figures{points: 1})
		}
	}
	note(t, "killed %d times, %d of them after the request had begun", len(kills)*len(requests), begun)
}

// secondStepBegan tells whether the agent has its new owner, or the audit log has an archive.
func secondStepBegan(t *testing.T, d *Daemon, name, newOwner string) bool {
	t.Helper()
	query := `SELECT group_concat(owner = '` + newOwner + `') FROM audit_agents WHERE agent = 'gone'`
	if name == "archive" {
		query = `SELECT min(1, count(*)) FROM audit_archives`
	}
	got, err := sqlite(d.DB, "-readonly", query)
	must(t, err)
	if got != "0" && got != "1" {
		t.Errorf("%s: %s, want 0 or 1", query, got)
	}
	return got == "1"
}

// wantNowhere looks for the erased text in the files of a database.
func wantNowhere(t *testing.T, d *Daemon, after time.Duration) {
	t.Helper()
	for _, file := range []string{d.DB, d.DB + "-wal"} {
		text, err := os.ReadFile(file)
		must(t, err)
		if n := bytes.Count(text, []byte(secondCanary+"gone")); n > 0 {
			t.Errorf("killed after %d ms: what was erased is in %s %d times", after, filepath.Base(file), n)
		}
	}
}
