package db

import (
	"bytes"
	"path/filepath"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// All tests of this package overwrite released memory at once, so that code
// that still reads it is noticed.
func init() {
	blob.Left = func(room []byte) {
		for i := range room {
			room[i] = 0xDD
		}
	}
}

// askingScan calls a function while a state is being scanned.
type askingScan struct{ ask func() }

func (a askingScan) Find([]byte, bool) []secrets.Secret { a.ask(); return nil }

func (a askingScan) FindAfter([]byte, jsontext.Checked, secrets.Seen) ([]secrets.Secret, secrets.Seen) {
	a.ask()
	return nil, nil
}

func (a askingScan) FindBytesAfter([]byte, []jsontext.Copy, secrets.Seen) ([]secrets.Secret, secrets.Seen) {
	return nil, nil
}

func (a askingScan) Redact(state []byte, _ bool) ([]byte, []secrets.Secret) { return state, nil }

// TestASaveHoldsItsBase: a save holds its base as long as it reads the state,
// and no longer.
func TestASaveHoldsItsBase(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	asked := 0
	users := func() int {
		for _, n := range s.States.Held().Users { // there is only one run
			return n
		}
		return -1
	}
	s.Opt.Secrets = askingScan{func() {
		if want := min(asked, 1) * 2; users()+1 != want { // none at first, then one
			t.Errorf("save %d: %d read the base", asked, users())
		}
		asked++
	}}
	s.Preparer.Scan = s.Opt.Secrets
	sc := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1000"}}
	for i := range 4 {
		state := append(s.Memory(60_000)[:0], '"')
		state = append(append(state, bytes.Repeat([]byte{'0' + byte(i)}, 50_000)...), '"')
		_, err := s.Save(t.Context(), sc, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state, Lent: true})
		if err != nil {
			t.Fatal(err)
		}
		if users() != 0 {
			t.Errorf("after save %d %d read the base", i, users())
		}
	}
	if asked != 4 {
		t.Errorf("%d states were looked at", asked)
	}
}
