//go:build linux

package faulttest

import (
	"bytes"
	"context"
	"os"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func init() { addRow("F19", "damaged pages and payloads at rest", true, damageAtRest) }

// damageAtRest is F19: bits flip in a database that no process has open. The
// daemon refuses each damaged checkpoint by its id and serves the others.
func damageAtRest(t *testing.T) {
	rounds := 40
	if isShort() {
		rounds = 6
	}
	random := newRand(t, 0)
	for range rounds {
		d, h := NewDaemon(t), NewHistory()
		d.Start()
		keepAll(t, d.Client(), "agent-0")
		sent := map[string][]byte{}
		for n := range 12 {
			r := newSave(t, "agent-0")
			r.ContentType, r.State = "application/octet-stream", noise(random.Uint64(), 1000+n*900)
			_, err := h.Save(context.Background(), d.Client(), r)
			must(t, err)
			sent[r.ID] = r.State
		}
		d.Stop()
		hit := d.flip(t, sent, 1+random.IntN(3))
		d.Start()
		served, refused := 0, 0
		for id, state := range sent {
			got, err := d.Client().State(context.Background(), id)
			switch {
			case err == nil && !bytes.Equal(got, state):
				t.Errorf("I1: another state of %s is served than was saved", id)
			case err == nil && hit[id]:
				t.Errorf("%s is served, and its bytes in the file are not its own", id)
			case err == nil:
				served++
			case ckpt.CodeOf(err) == ckpt.CodeCorrupt && hit[id]:
				refused++
			default:
				t.Errorf("%s, which no damage hit, is answered with %v", id, err)
			}
		}
		d.Kill()
		if out, err := d.command("verify", "--db", d.DB).CombinedOutput(); err == nil {
			t.Errorf("verify finds no damage: %s", out)
		}
		count(t, figures{rounds: 1, points: refused, acked: served})
		d.cleanUp()
	}
}

// flip inverts one bit in the middle of some of the states, in the file of a
// daemon that has been stopped.
func (d *Daemon) flip(t *testing.T, states map[string][]byte, most int) (hit map[string]bool) {
	t.Helper()
	_, err := sqlite(d.DB, "PRAGMA wal_checkpoint(TRUNCATE)") // this moves the bytes into the file
	if err != nil {
		t.Skip(err)
	}
	file, err := os.ReadFile(d.DB)
	must(t, err)
	hit = map[string]bool{}
	for id, state := range states {
		at := bytes.Index(file, state[200:300])
		if len(hit) == most || at < 0 {
			continue
		}
		file[at+50] ^= 1 << (at % 8)
		hit[id] = true
	}
	if len(hit) == 0 {
		t.Fatal("no state was found in the file")
	}
	must(t, os.WriteFile(d.DB, file, 0o600))
	return hit
}
