package client

import (
	"errors"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// Fate is what became of a write.
type Fate string

// The fates of a write that is not an error.
const (
	Stored  Fate = "stored"  // on disk in the daemon's database
	Spooled Fate = "spooled" // on disk in the spool, to be sent later
	Dropped Fate = "dropped" // nowhere; only with DropWhenFull
)

var errDropped = errors.New("dropped: it could neither be sent nor spooled")

// DialError says that no daemon could be reached at its Path, and in its Err why.
// Its method Stranger tells whether somebody does listen there who is not trusted.
// A call of [Wire], and any other call that is not spooled, answers it.
type DialError = client.DialError

// KeptError says that a write of [Wire] was not made, but lies in the spool to be
// made later. Its Err is why.
type KeptError = client.KeptError

// fate sorts the error of a write.
func fate(err error) (Fate, error) {
	var kept *KeptError
	switch {
	case err == nil:
		return Stored, nil
	case errors.As(err, &kept):
		return Spooled, nil
	case errors.Is(err, errDropped):
		return Dropped, nil
	}
	return "", err
}

// passes says whether a write that failed with err may succeed later.
func passes(err error) bool {
	if err == nil {
		return false
	}
	var e *ckpt.Error
	if !errors.As(err, &e) {
		return true // nobody there
	}
	switch e.Code {
	case ckpt.CodeBusy, ckpt.CodeQuota, ckpt.CodeStorageFull, ckpt.CodeInternal, ckpt.CodeCorrupt, ckpt.CodeNotReplicated:
		return true
	}
	return false
}
