package db

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// In all tests of this package memory that is left is overwritten at once, so that
// who still reads it is found out.
func init() {
	ledger.Left = func(room []byte) {
		for i := range room {
			room[i] = 0xDD
		}
	}
}

// TestSum: a hash that goes on from a midstate is the hash, and so are the
// midstates that it adds.
func TestSum(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	state := make([]byte, 400_000)
	for i := range state {
		state[i] = byte(r.Uint32())
	}
	_, whole := ledger.Sum(state, nil)
	if len(whole) != len(state)/ledger.MidstateEvery*ledger.MidstateSize {
		t.Fatalf("%d bytes of midstates", len(whole))
	}
	for range 300 {
		common := r.IntN(len(state) + 1)
		next := append(slices.Clone(state[:common]), make([]byte, r.IntN(200_000))...)
		got, mids := ledger.Sum(next, whole.UpTo(common))
		want := sha256.Sum256(next)
		if got != hex.EncodeToString(want[:]) {
			t.Fatalf("%d of %d bytes in common: another hash", common, len(next))
		}
		if _, all := ledger.Sum(next, nil); !bytes.Equal(all, mids) {
			t.Fatalf("%d of %d bytes in common: other midstates", common, len(next))
		}
	}
	broken := slices.Clone(whole)
	clear(broken)
	if got, mids := ledger.Sum(state, broken); mids != nil || got != hex.EncodeToString(func() []byte { s := sha256.Sum256(state); return s[:] }()) {
		t.Error("from a midstate that is none comes another hash")
	}
}

// TestRooms: memory comes back as large as is asked, and no more of it waits
// than may.
func TestRooms(t *testing.T) {
	s := &Store{Core: &ledger.Core{Live: ledger.Live{Most: 8 << 20}}}
	r := rand.New(rand.NewPCG(2, 2))
	again := 0
	var out []*ledger.Stored
	for range 2000 {
		size := 1 + r.IntN(600_000)
		room := s.Memory(size)
		if len(room) != size || cap(room) > 2*ledger.RoomFor(size) {
			t.Fatalf("%d bytes of %d for %d", len(room), cap(room), size)
		}
		if room[0] == 0xDD {
			again++
		}
		b := &ledger.Stored{Lent: true}
		b.State = room
		out = append(out, b.Hold())
		if len(out) > 6 {
			first := out[0]
			first.Dropped, out = true, out[1:]
			s.Live.Release(first)
		}
		if s.Live.Rooms.Held > s.Live.Most/4 || len(s.Live.Rooms.List) > ledger.MostRooms {
			t.Fatalf("%d bytes wait", s.Live.Rooms.Held)
		}
	}
	if again < 500 {
		t.Errorf("only %d of 2000 were used again", again)
	}
	s.Live.Expire(time.Now().Add(time.Hour))
	if s.Live.Rooms.Held != 0 || len(s.Live.Rooms.List) != 0 {
		t.Error("idle memory is not given back")
	}
}

// TestHeldStatesStay: what somebody reads is not used again before he is done,
// and what is not the store's never.
func TestHeldStatesStay(t *testing.T) {
	l := ledger.Live{Most: 8 << 20}
	key := ledger.RunKey{Owner: "o", Agent: "a", Run: "r"}
	put := func(id string, lent bool) *ledger.Stored {
		b := &ledger.Stored{ID: id, Lent: lent}
		b.State = make([]byte, 100_000)
		l.Put(key, b)
		return b
	}
	put("1", true)
	held := l.Get(key)
	again := l.Find("o", "a", "1")
	put("2", true)
	if held.State == nil || len(l.Rooms.List) != 0 {
		t.Fatal("a state that is read was given away")
	}
	l.Release(held)
	if held.State == nil {
		t.Fatal("a state that another reads was given away")
	}
	l.Release(again)
	if held.State != nil || len(l.Rooms.List) != 1 {
		t.Fatal("a state that nobody has was not given away")
	}
	second := l.Get(key)
	l.ForgetAgent("o", "a")
	if second.State == nil || second.State[0] != 0 {
		t.Fatal("an erased agent's state was given away while it was read")
	}
	l.Release(second)
	own := put("3", false)
	put("4", true)
	if own.State == nil || len(l.Rooms.List) != 2 {
		t.Error("memory of somebody else was taken")
	}
}

// askingScan asks something while a state is looked at.
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

// TestASaveHoldsItsBase for as long as it looks at the state, and no longer.
func TestASaveHoldsItsBase(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	key, asked := ledger.RunKey{Owner: "uid:1000", Agent: "a", Run: ckpt.MainRun}, 0
	users := func() int {
		s.Live.Mu.Lock()
		defer s.Live.Mu.Unlock()
		if e := s.Live.Runs[key]; e != nil {
			return e.Value.(*ledger.LiveState).State.Users
		}
		return -1
	}
	s.Opt.Secrets = askingScan{func() {
		if want := min(asked, 1) * 2; users()+1 != want { // none at first, then one
			t.Errorf("save %d: %d read the base", asked, users())
		}
		asked++
	}}
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
