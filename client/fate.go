package client

import (
	"errors"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// Fate is what happened to a write.
type Fate string

// The fates of a write that is not an error.
const (
	Stored  Fate = "stored"  // on disk in the daemon's database
	Spooled Fate = "spooled" // on disk in the spool, to be sent later
	Dropped Fate = "dropped" // nowhere; only with DropWhenFull
)

var errDropped = errors.New("dropped: it could be neither sent nor spooled")

// DialError means that no daemon could be reached at Path; Err is the reason. Its method Stranger
// reports whether an untrusted program listens there. Calls of [Wire], and all other calls that are
// not spooled, return it.
type DialError = client.DialError

// KeptError means that a write of [Wire] was not sent, but is in the spool and will be sent later.
// Err is the reason.
type KeptError = client.KeptError

// fate turns the error of a write into its fate. It returns the error if the write failed.
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

// passes reports whether a write that failed with err can succeed later.
func passes(err error) bool {
	if err == nil {
		return false
	}
	var e *ckpt.Error
	if !errors.As(err, &e) {
		return true // no daemon answered
	}
	switch e.Code {
	case ckpt.CodeBusy, ckpt.CodeQuota, ckpt.CodeStorageFull, ckpt.CodeInternal, ckpt.CodeCorrupt, ckpt.CodeNotReplicated:
		return true
	}
	return false
}
