package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// saveState saves through a client and checks that the store has these bytes.
func (w *world) saveState(c *client.Client, agent, run string, state []byte) *ckpt.Saved {
	w.t.Helper()
	saved, err := c.Save(w.t.Context(), &ckpt.SaveRequest{Agent: agent, Run: run, Kind: ckpt.KindRecovery, ContentType: "application/json; x=1", State: state})
	expect.OK(w.t, err)
	ck, err := c.Checkpoint(w.t.Context(), saved.ID, true)
	expect.OK(w.t, err)
	if !bytes.Equal(ck.State, state) || ck.ContentType != "application/json; x=1" {
		w.t.Fatalf("%d bytes arrived as %d of %s", len(state), len(ck.State), ck.ContentType)
	}
	return saved
}

func grown(n int) []byte {
	return fmt.Appendf(nil, `{"n":%d,"messages":["%s"]}`, n, strings.Repeat("0123456789 and so on, ", 1000+n*10))
}

// TestOnlyWhatChangedIsSent: the client sends what changed, and the caller may
// reuse its buffer.
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
	expect.Equal(t, "bases that were asked for", w.store.bases.Load(), 19)
	w.saveState(w.client, "a", "another", grown(20))
	w.saveState(w.client, "b", "", grown(20))
	w.saveState(w.client, "a", "", []byte(`"small"`))
	expect.Equal(t, "bases that were asked for", w.store.bases.Load(), 19)
	w.saveState(w.client, "a", "", grown(21))
	w.saveState(w.client, "a", "main", grown(22))
	expect.Equal(t, "bases that were asked for", w.store.bases.Load(), 21)
	w.saveState(&client.Client{Socket: w.path, Whole: true}, "a", "", grown(23))
	w.saveState(w.client, "a", "", bytes.Repeat([]byte{'1'}, 50_000)) // it has nothing in common with the others
	expect.Equal(t, "bases that were asked for", w.store.bases.Load(), 21)
}

func TestAMissingBaseIsNoError(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		saved := w.saveState(w.client, "a", "", grown(i))
		_, err := w.store.Delete(t.Context(), me(), saved.ID)
		expect.OK(t, err)
	}
	expect.Equal(t, "bases that were asked for", w.store.bases.Load(), 4)
}

// TestARedactedStateIsNoBase: if a policy redacts, the daemon has other bytes
// than the client. The client must not send changes against those.
func TestARedactedStateIsNoBase(t *testing.T) {
	w := newWorld(t)
	w.redact("a")
	for i := range 4 {
		state := append(grown(i)[:20_000], " "+secret+`"]}`...)
		saved, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRecovery, ContentType: ckpt.ContentTypeJSON, State: state})
		expect.OK(t, err)
		ck, err := w.client.Checkpoint(t.Context(), saved.ID, true)
		expect.OK(t, err)
		if bytes.Equal(ck.State, state) || bytes.Contains(ck.State, []byte(secret)) || !bytes.HasPrefix(ck.State, state[:20_000]) {
			t.Errorf("the state ends with %q", ck.State[len(ck.State)-100:])
		}
	}
	expect.Equal(t, "bases that were asked for", w.store.bases.Load(), 0)
}

const secret = "AKIAQZ7XH4M2PLWJTRNB"

// redact sets a policy that removes secrets from the states of an agent.
func (w *world) redact(agent string) {
	w.t.Helper()
	p := ckpt.DefaultPolicy()
	p.Secrets = ckpt.SecretsRedact
	_, err := w.client.SetPolicy(w.t.Context(), agent, p)
	expect.OK(w.t, err)
}

// TestManyChanges: for every kind of change, the client's copy of the state
// stays equal to the daemon's, so that each save is one request with a change.
func TestManyChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := rand.New(rand.NewPCG(3, 4))
	state := grown(1)
	w.saveState(w.client, "a", "", state)
	for range 150 {
		next := bytes.Clone(state)
		for range 1 + r.IntN(3) {
			at, end := r.IntN(len(next)), len(next)-3
			switch r.IntN(5) {
			case 0:
				next = slices.Insert(next, min(at, end), []byte(strings.Repeat("new ", 1+r.IntN(500)))...)
			case 1:
				if at > 30 && len(next) > 15_000 {
					next = slices.Delete(next, at/2+20, at+1)
				}
			case 2:
				copy(next[5:], itoa(r.IntN(10)))
			case 3:
				next[max(30, min(at, end))-1] = 'x'
			case 4:
				next = append(next[:end], strings.Repeat("more ", r.IntN(900))+`"]}`...)
			}
		}
		before := w.server.Stats().Answered
		saved, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRecovery, ContentType: ipc.TypeBytes, State: next})
		expect.OK(t, err)
		expect.Equal(t, "requests", w.server.Stats().Answered-before, 1)
		ck, err := w.client.Checkpoint(t.Context(), saved.ID, true)
		expect.OK(t, err)
		if !bytes.Equal(ck.State, next) {
			t.Fatal("another state was saved")
		}
		state = next
	}
	if n := w.store.bases.Load(); n < 130 { // the others have little in common
		t.Errorf("only %d of 150 were sent as a change", n)
	}
}

// TestADamagedBaseIsFound: a change that is applied to a damaged base gives
// another state than the client has. The daemon notices, and the client sends
// the whole state.
func TestADamagedBaseIsFound(t *testing.T) {
	w := newWorld(t)
	w.store.onBase = func(state []byte) []byte {
		damaged := bytes.Clone(state)
		damaged[500]++
		return damaged
	}
	for i := range 4 {
		w.saveState(w.client, "a", "", grown(i))
	}
	expect.Equal(t, "bases that were asked for", w.store.bases.Load(), 3)
}

func TestChecksums(t *testing.T) {
	w := newWorld(t)
	base := w.save("a", `{"a":1}`)
	good := "Ckpt-Crc32c: " + ipc.CRC32C([]byte(`{"a":2}`))
	expect.Equal(t, "the checksum of 123456789", ipc.CRC32C([]byte("123456789")), "e3069283") // polynomial of RFC 3720
	change := []string{"[[0,5],2]\n2}", "Content-Type: " + ipc.TypeDelta, "Ckpt-Base-Sha256: " + base.SHA256}
	whole := []string{`{"a":2}`, "Content-Type: application/json"}
	for i, c := range []struct {
		form []string
		sums []string
		code ckpt.Code
	}{
		{change, nil, ""},
		{change, []string{good}, ""},
		{change, []string{"Ckpt-Crc32c: 00000000"}, ckpt.CodeBaseMissing},
		{change, []string{"Ckpt-Crc32c: x"}, ckpt.CodeBaseMissing},
		{whole, []string{good}, ""},
		{whole, []string{"Ckpt-Crc32c: 00000000"}, ckpt.CodeInvalid},
		{whole, []string{good, good}, ckpt.CodeInvalid},
	} {
		id, err := newTestID()
		expect.OK(t, err)
		target := saves + "/" + id + "?kind=recovery"
		if i < 4 {
			target += "&base=" + base.ID
		}
		r := w.send("PUT", target, c.form[0], append(slices.Clone(c.form[1:]), c.sums...)...)
		if c.code != "" {
			expect.Equal(t, "the code of "+itoa(i), r.problem(t).Code, c.code)
			continue
		}
		expect.Equal(t, "the status of "+itoa(i)+r.body, r.status, 201)
		expect.Equal(t, "stored as sent", r.header.Get("Ckpt-As-Sent"), "true")
	}
	w.redact("a")
	r := w.send("POST", saves+"?kind=recovery", "raw "+secret)
	expect.Equal(t, "status", r.status, 201)
	expect.Equal(t, "not stored as sent", len(r.header["Ckpt-As-Sent"]), 0)
}

func TestAFailedSaveKeepsTheBase(t *testing.T) {
	w := newWorld(t)
	w.saveState(w.client, "a", "", grown(1))
	w.store.onSave = func(context.Context, *ckpt.SaveRequest) error { return ckpt.Errorf(ckpt.CodeQuota, "full") }
	_, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRecovery, ContentType: ckpt.ContentTypeJSON, State: grown(2)})
	expect.Code(t, err, ckpt.CodeQuota)
	w.store.onSave = nil
	w.saveState(w.client, "a", "", grown(3))
	expect.Equal(t, "bases that were asked for", w.store.bases.Load(), 2)
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
		code                ckpt.Code // "" means saved
	}{
		{"base=" + base.ID, "[[0,5],2]\n2}", hash, ""},
		{"base=" + base.ID + "&content_type=text/plain", "[3,[0,2]]\nx{y", hash, ""},
		{"base=" + base.ID, "[3,[0,2]]\nx{y", hash, ckpt.CodeInvalid}, // not JSON
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
		id, err := newTestID()
		expect.OK(t, err)
		target := saves + "/" + id + "?kind=recovery&" + c.query
		r := w.send("PUT", target, c.body, "Content-Type: "+ipc.TypeDelta, c.header)
		if c.code != "" {
			expect.Equal(t, fmt.Sprint("the code of ", i), r.problem(t).Code, c.code)
			continue
		}
		expect.Equal(t, fmt.Sprint("the status of ", i, r.body), r.status, 201)
		again := w.send("PUT", target, c.body, "Content-Type: "+ipc.TypeDelta, c.header)
		expect.Equal(t, "again", again.header.Get("Idempotent-Replayed"), "true")
		if i == 0 { // the same state, sent whole
			whole := w.send("PUT", saves+"/"+id+"?kind=recovery", `{"a":2}`, "Content-Type: application/json")
			expect.Equal(t, "whole", whole.header.Get("Idempotent-Replayed"), "true")
		}
	}
}
