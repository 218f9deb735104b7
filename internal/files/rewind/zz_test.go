package rewind

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func TestZZBackOfBack(t *testing.T) {
	root := t.TempDir()
	was, is := world{"a": "1"}, world{"a": "1", "new": "mine"}
	is.make(t, root)
	f := open(t, root)
	p := Make(wishOf(was, is), f, Options{Remove: true})
	path := filepath.Join(t.TempDir(), "journal")
	all := map[string][]byte{}
	was.contents(all)
	is.contents(all)
	contents := func(_ context.Context, sum string) ([]byte, error) { return all[sum], nil }
	j := NewJournal(path, Journal{ID: "0badcafe", Root: root}, p)
	die := func(at string, do func()) {
		defer func() { f.step = func(string) {}; recover() }()
		f.step = func(s string) {
			if s == at {
				panic("x")
			}
		}
		do()
	}
	die("end", func() { _ = j.Apply(t.Context(), f, contents) })
	j, _ = ReadJournal(path)
	t.Log(j.Phase, readWorld(t, root))
	b := NewJournal(path, Journal{ID: "0badcaff", Root: root, Trash: j.StagedFiles()}, Back(j, is.entries(), f, Options{})).InPlaceOf(j)
	die("end", func() { _ = b.Apply(t.Context(), f, contents) })
	b, _ = ReadJournal(path)
	t.Log(b.Phase, readWorld(t, root))
	pp := Back(b, is.entries(), f, Options{})
	t.Logf("%+v", pp.Items)
	must(t, NewJournal(path, Journal{ID: "0badca00", Root: root, Trash: b.StagedFiles()}, pp).Apply(t.Context(), f, contents))
	if d := cmp.Diff(is, readWorld(t, root)); d != "" {
		t.Error(d)
	}
}

func TestZZAsideBack(t *testing.T) {
	root := t.TempDir()
	was, run, is := world{"a": "1"}, world{"a": "2"}, world{"a": "mine"}
	is.make(t, root)
	p := Make(wishOf(was, run), open(t, root), Options{Aside: true})
	must(t, apply(t, root, p, was))
	j := &Journal{ID: "0badcafe", Items: p.Items}
	b := Back(j, nil, open(t, root), Options{})
	for _, i := range b.Items {
		t.Logf("%+v", i)
	}
}

func TestZZPerf(t *testing.T) {
	j := &Journal{}
	for i := range 10000 {
		j.Items = append(j.Items, Item{Path: fmt.Sprintf("some/folder/with/name%d", i), Do: Write}, Item{Path: fmt.Sprintf("another/folder/with/name%d", i), Do: Remove})
	}
	start := time.Now()
	j.order()
	t.Log(time.Since(start))
	m := &maker{Wish: &Wish{}}
	for i := range 10000 {
		m.Gone = append(m.Gone, ckpt.LeftOut{Path: fmt.Sprintf("third/folder/with/name%d", i)})
	}
	start = time.Now()
	for i := range 20000 {
		m.leftOut(fmt.Sprintf("another/folder/with/name%d", i))
	}
	t.Log(time.Since(start))
}
