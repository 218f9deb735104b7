package blob

import (
	"context"
	"sync/atomic"

	"github.com/ckptsidecar/ckptsidecar/internal/delta"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
	"github.com/jmoiron/sqlx"
)

// known is what is known of a state besides its bytes, so that only the new parts of the next state
// must be examined.
type known struct {
	JSON   *jsontext.Map // of a JSON state that was checked
	seen   secrets.Seen  // where its secrets are; nil if it was not searched
	hashed midstates
}

func (k *known) bytes() int64 {
	n := int64(k.JSON.Size() + len(k.hashed))
	if k.seen != nil {
		n += int64(k.seen.Size())
	}
	return n
}

// RunKey names a run.
type RunKey struct{ Owner, Agent, Run string }

// Place identifies a checkpoint: its number, its run, its place in the run and its id.
type Place struct {
	N, RunID, Seq int64
	ID            string
}

// Doubts counts how often something has cast doubt on what is on disk.
type Doubts struct{ atomic.Int64 }

// Stored is a state on disk, with its pieces. The next state of its run is compared with it. It
// does not change while it has users.
type Stored struct {
	delta.Base
	known
	Place
	SHA256 string

	lent    bool // its memory came from States.Memory
	users   int  // how many readers it has; under the lock of States
	dropped bool // States has dropped it

	doubts *Doubts // the count of doubts; nil for a state that this transaction has read
	since  int64   // the count before it was read or written
}

// Doubted says that the pieces on disk may have changed since the state was read or written. No new
// state may be based on them until they have been read again.
func (b *Stored) Doubted() bool { return b.doubts != nil && b.since != b.doubts.Load() }

// Bytes is how much memory the state takes.
func (b *Stored) Bytes() int64 {
	return int64(cap(b.State)) + 128*int64(len(b.Pieces)) + b.known.bytes()
}

// Hold keeps a state's memory from being used again. It does nothing for nil. The caller has the
// lock, or is the state's only user.
func (b *Stored) Hold() *Stored {
	if b != nil {
		b.users++
	}
	return b
}

// standOn reads a list of pieces, and the sizes of the segments that it names.
func (b *Stored) standOn(ctx context.Context, q sqlx.QueryerContext, pieces string) (err error) {
	if b.Pieces, err = ReadPieces(pieces); err != nil {
		return err
	}
	b.Sizes = make(map[int64]int64, len(b.Pieces))
	var sizes []segment
	err = sqlx.SelectContext(ctx, q, &sizes, `SELECT id, size FROM segments
		WHERE id IN (SELECT json_extract(value, '$[0]') FROM json_each(?))`, pieces)
	for _, segment := range sizes {
		b.Sizes[segment.ID] = segment.Size
	}
	return err
}
