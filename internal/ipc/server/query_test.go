package server

import (
	"context"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

func TestQueryIsReadStrictly(t *testing.T) {
	for raw, part := range map[string]string{
		"kind=routine&kind=routine":     "kind was given twice",
		"owner=a&owner=b":               "owner was given twice",
		"colour=red":                    `"colour" is unknown`,
		"Kind=routine":                  `"Kind" is unknown`,
		"kind=":                         `"kind" has no value`,
		"kind":                          `"kind" has no value`,
		"run=%zz":                       `"run" is not valid escaped`,
		"run=%ff":                       `"run" is not valid escaped`,
		"%ff=1":                         "name is not valid escaped",
		"run=a;kind=b":                  `"run" is not valid escaped`,
		"=x":                            `"" is unknown`,
		strings.Repeat("x", 999) + "=1": "…",
	} {
		_, err := readQuery(raw, saveParams)
		if ckpt.CodeOf(err) != ckpt.CodeInvalid || !strings.Contains(err.Error(), part) {
			t.Errorf("%.40q: %v, want %q in it", raw, err, part)
		}
	}
	q, err := readQuery("&kind=routine&&label=a=1&label=b=x%3Dy&label=c=&run=r+1&owner=uid:1&", saveParams)
	expect.OK(t, err)
	expect.Equal(t, "kind", q.get("kind"), "routine")
	expect.Equal(t, "run", q.get("run"), "r 1")
	expect.Equal(t, "owner", q.get("owner"), "uid:1")
	labels, err := q.labels()
	expect.OK(t, err)
	expect.Equal(t, "labels", len(labels), 3)
	expect.Equal(t, "label b", labels["b"], "x=y")
}

func TestQueryValuesOfTheWrongSort(t *testing.T) {
	bad := func(raw string, read func(query) error) {
		t.Helper()
		q, err := readQuery(raw, append(listParams, "clean", "epoch"))
		expect.OK(t, err)
		if err := read(q); ckpt.CodeOf(err) != ckpt.CodeInvalid {
			t.Errorf("%s: %v", raw, err)
		}
	}
	limit := func(q query) error { _, err := q.limit(); return err }
	for _, s := range []string{"0", "-1", "1001", "x", "1.5", "99999999999999999999"} {
		bad("limit="+s, limit)
	}
	bad("clean=yes", func(q query) error { _, err := q.is("clean", false); return err })
	bad("suspect=1", func(q query) error { _, err := q.flag("suspect"); return err })
	labels := func(q query) error { _, err := q.labels(); return err }
	for _, s := range []string{"label=a", "label=a=1&label=a=2", "label==v", "label=a%20b=1", "label=a=%00"} {
		bad(s, labels)
	}
	bad("kind=Routine", func(q query) error { _, err := q.kind(); return err })
	bad("run=../x", func(q query) error { _, err := q.run(); return err })
}

func TestQueryOfTheClientIsReadBack(t *testing.T) {
	epoch := int64(7)
	r := &ckpt.SaveRequest{Kind: ckpt.KindRoutine, Run: "r:1+2", Epoch: &epoch, Step: "a&b=c ü%", Labels: ckpt.Labels{"k": "v=1 & ü;x", "l": ""}}
	r.Agent, r.ContentType, r.State = "a", "text/plain", []byte("state")
	w := newWorld(t)
	var got *ckpt.SaveRequest
	w.store.onSave = func(_ context.Context, r *ckpt.SaveRequest) error { got = r; return errSeen }
	_, err := w.client.Save(t.Context(), r)
	expect.Code(t, err, errSeen.Code)
	expect.Equal(t, "run", got.Run, r.Run)
	expect.Equal(t, "step", got.Step, r.Step)
	expect.Equal(t, "epoch", *got.Epoch, epoch)
	expect.Equal(t, "label k", got.Labels["k"], r.Labels["k"])
	expect.Equal(t, "labels", len(got.Labels), 2)
}

func TestOwnersThatExist(t *testing.T) {
	for s, want := range map[string]bool{
		"uid:0": true, "uid:4294967294": true, "S-1-5-21-1-2-3": true, "S-1-5-18": true,
		"": false, "uid:": false, "uid:-1": false, "uid:1x": false, "root": false, "S-1-": false, "S-1-5-": false, "uid:99999999999": false, "S-1-5-x": false,
		"S-1-" + strings.Repeat("1", 300): false,
	} {
		expect.Equal(t, s, ckpt.IsOwner(s), want)
	}
}
