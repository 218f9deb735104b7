package ipc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// saveState saves through a client and checks that the store has these bytes.
func (w *world) saveState(c *Client, agent, run string, state []byte) *ckpt.Saved {
	w.t.Helper()
	saved, err := c.Save(w.t.Context(), &ckpt.SaveRequest{Agent: agent, Run: run, Kind: ckpt.KindRecovery, ContentType: "application/json; x=1", State: state})
	check(w.t, err)
	ck, err := c.Checkpoint(w.t.Context(), saved.ID, true)
	check(w.t, err)
	if !bytes.Equal(ck.State, state) || ck.ContentType != "application/json; x=1" {
		w.t.Fatalf("%d bytes arrived as %d of %s", len(state), len(ck.State), ck.ContentType)
	}
	return saved
}

func grown(n int) []byte {
	return fmt.Appendf(nil, `{"n":%d,"messages":["%s"]}`, n, strings.Repeat("0123456789 and so on, ", 1000+n*10))
}

// The client sends what changed, and the same buffer may be used again.
func TestOnlyWhatChangedIsSent(t *testing.T) {
	w := newWorld(t, limits(Limits{MaxBody: 1 << 20}))
	buffer := make([]byte, 0, 1<<20)
	for i := range 20 {
		buffer = append(buffer[:0], grown(i)...)
		w.saveState(w.client, "a", "", buffer)
		for k := range buffer {
			buffer[k] = 'x'
		}
	}
	equal(t, "bases that were asked for", w.store.bases.Load(), 19)
	w.saveState(w.client, "a", "another", grown(20))
	w.saveState(w.client, "b", "", grown(20))
	w.saveState(w.client, "a", "", []byte(`"small"`))
	equal(t, "bases that were asked for", w.store.bases.Load(), 19)
	w.saveState(w.client, "a", "", grown(21))
	w.saveState(w.client, "a", "main", grown(22))
	equal(t, "bases that were asked for", w.store.bases.Load(), 21)
	w.saveState(&Client{Socket: w.path, Whole: true}, "a", "", grown(23))
	w.saveState(w.client, "a", "", bytes.Repeat([]byte{'1'}, 50_000)) // nothing in common
	equal(t, "bases that were asked for", w.store.bases.Load(), 21)
}

func TestAMissingBaseIsNoError(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.saveState(w.client, "a", "", grown(i))
		w.store.mu.Lock()
		w.store.list = nil
		w.store.mu.Unlock()
	}
	equal(t, "bases that were asked for", w.store.bases.Load(), 4)
}

// Where a policy redacts, the daemon has other bytes than the client: what
// changed must not be told against those.
func TestARedactedStateIsNoBase(t *testing.T) {
	w := newWorld(t)
	w.store.onSave = func(_ context.Context, r *ckpt.SaveRequest) error {
		r.State = bytes.ReplaceAll(r.State, []byte("secret"), []byte("******"))
		return nil
	}
	for i := range 4 {
		state := append(grown(i)[:20_000], `secret"]}`...)
		saved, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRecovery, ContentType: ckpt.ContentTypeJSON, State: state})
		check(t, err)
		ck, err := w.client.Checkpoint(t.Context(), saved.ID, true)
		check(t, err)
		equal(t, "the state", string(ck.State), strings.ReplaceAll(string(state), "secret", "******"))
	}
	equal(t, "bases that were asked for", w.store.bases.Load(), 0)
}

func TestAFailedSaveKeepsTheBase(t *testing.T) {
	w := newWorld(t)
	w.saveState(w.client, "a", "", grown(1))
	w.store.onSave = func(context.Context, *ckpt.SaveRequest) error { return ckpt.Errorf(ckpt.CodeQuota, "full") }
	_, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRecovery, ContentType: ckpt.ContentTypeJSON, State: grown(2)})
	wantCode(t, err, ckpt.CodeQuota)
	w.store.onSave = nil
	w.saveState(w.client, "a", "", grown(3))
	equal(t, "bases that were asked for", w.store.bases.Load(), 2)
}

func TestOneClientSavesAtOnce(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			for i := range 10 {
				state := grown(g*3 + i)
				saved, err := w.client.Save(context.Background(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRecovery, ContentType: ckpt.ContentTypeJSON, State: state})
				sum := sha256.Sum256(state)
				if err != nil || saved.SHA256 != hex.EncodeToString(sum[:]) {
					t.Errorf("another state was saved: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func TestChangesAreChecked(t *testing.T) {
	w := newWorld(t, limits(Limits{MaxBody: 1000}))
	base := w.save("a", `{"a":1}`)
	elsewhere := w.save("b", `{"a":1}`)
	hash := "Ckpt-Base-Sha256: " + base.SHA256
	for i, c := range []struct {
		query, body, header string
		code                ckpt.Code // "" for saved
	}{
		{"base=" + base.ID, "[[0,5],2]\n2}", hash, ""},
		{"base=" + base.ID + "&content_type=text/plain", "[3,[0,2]]\nx{y", hash, ""},
		{"base=" + base.ID, "[3,[0,2]]\nx{y", hash, ckpt.CodeInvalid}, // no JSON
		{"base=" + base.ID, "[[0,5],2]\n2}x", hash, ckpt.CodeInvalid},
		{"base=" + base.ID, "[[0,8]]\n", hash, ckpt.CodeInvalid},
		{"base=" + base.ID, "[[0,7]]", hash, ckpt.CodeInvalid},
		{"base=" + base.ID, "", hash, ckpt.CodeInvalid},
		{"base=" + base.ID, "[" + strings.Repeat("[0,7],", 149) + "[0,7]]\n", hash, ckpt.CodeTooLarge},
		{"base=" + base.ID, "[[0,7]]\n", "Ckpt-Base-Sha256: x", ckpt.CodeInvalid},
		{"base=" + base.ID, "[[0,7]]\n", "X: y", ckpt.CodeInvalid},
		{"base=" + base.ID, "[[0,7]]\n", "Ckpt-Base-Sha256: " + strings.Repeat("a", 64), ckpt.CodeBaseMissing},
		{"base=" + elsewhere.ID, "[[0,7]]\n", hash, ckpt.CodeBaseMissing},
		{"base=" + id1, "[[0,7]]\n", hash, ckpt.CodeBaseMissing},
		{"base=x", "[[0,7]]\n", hash, ckpt.CodeInvalid},
		{"run=r", "[[0,7]]\n", hash, ckpt.CodeInvalid},
	} {
		id, err := newID()
		check(t, err)
		target := saves + "/" + id + "?kind=recovery&" + c.query
		r := w.send("PUT", target, c.body, "Content-Type: "+typeDelta, c.header)
		if c.code != "" {
			equal(t, fmt.Sprint("the code of ", i), r.problem(t).Code, c.code)
			continue
		}
		equal(t, fmt.Sprint("the status of ", i, r.body), r.status, 201)
		again := w.send("PUT", target, c.body, "Content-Type: "+typeDelta, c.header)
		equal(t, "again", again.header.Get("Idempotent-Replayed"), "true")
		if i == 0 { // the same state, whole
			whole := w.send("PUT", saves+"/"+id+"?kind=recovery", `{"a":2}`, "Content-Type: application/json")
			equal(t, "whole", whole.header.Get("Idempotent-Replayed"), "true")
		}
	}
}
