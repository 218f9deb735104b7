package endpoint

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
)

var errTooLong = errors.New("too long")

// DialError means that no daemon could be reached at Path. It says why, and what to do.
type DialError struct {
	Path string
	From string // what named the endpoint, "" for a default one
	Err  error
}

func (e *DialError) Unwrap() error { return e.Err }

// Stranger reports whether an untrusted program listens at Path. This does not mean that
// a daemon is missing.
func (e *DialError) Stranger() bool {
	var stranger *StrangerError
	return errors.As(e.Err, &stranger)
}

// Nobody reports whether no program listens at Path.
func (e *DialError) Nobody() bool { return errors.Is(e.Err, fs.ErrNotExist) || isStale(e.Err) }

// OwnDatabaseError means that only the system's daemon answers, although the user has a database of
// an own daemon. Work that began there would begin anew at the system's daemon, so nothing was sent.
type OwnDatabaseError struct {
	Database string // the user's
	Socket   string // of the user's own daemon, which does not answer
}

func (e *OwnDatabaseError) Error() string {
	return "your own database " + e.Database + " exists, and your own daemon does not answer at " + e.Socket
}

func (e *DialError) Error() string {
	const start = `start one with "ckptsidecar serve", or name another endpoint with --socket or ` + EnvSocket
	place := e.Path
	if e.From != "" {
		place += " (named by " + e.From + ")"
	}
	var own *OwnDatabaseError
	switch {
	case errors.As(e.Err, &own):
		return "refused to use the system's daemon at " + place + ": " + own.Error() +
			`; start your own daemon with "ckptsidecar serve", or choose the system's with --socket or ` + EnvSocket +
			", or move your own database away"
	case e.Stranger():
		return "refused to talk to the program at " + place + ": " + e.Err.Error() +
			"; name your own daemon with --socket or " + EnvSocket + ", or run this as that user"
	case errors.Is(e.Err, fs.ErrNotExist):
		return "no daemon answers at " + place + ": " + start
	case isStale(e.Err):
		return "no daemon answers at " + place + "; its socket is from a daemon that has ended: " + start
	case errors.Is(e.Err, fs.ErrPermission):
		return "not allowed to connect to " + place + ": " + howToJoin(e.Path) + ", or name another endpoint with --socket or " + EnvSocket
	case isBusy(e.Err):
		return "the daemon at " + place + " cannot accept more connections now: try again later"
	}
	return "cannot connect to " + place + ": " + e.Err.Error()
}

// Dial connects to the daemon at path. With an empty path it tries the endpoint that
// CKPTSIDECAR_SOCKET names, or else the default ones in order. An endpoint that is named
// is the only one tried. Its errors are *DialError, except the context's own.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	if path != "" {
		return dialOne(ctx, path, "--socket or Client.Socket")
	}
	if named := os.Getenv(EnvSocket); named != "" {
		return dialOne(ctx, named, EnvSocket)
	}
	return dialFirst(ctx, Usual(), OwnDatabase())
}

func dialOne(ctx context.Context, path, from string) (net.Conn, error) {
	c, err := dial(ctx, path)
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, &DialError{Path: path, From: from, Err: err}
}

// dialFirst tries the paths. If an endpoint exists and refuses the connection, that says
// more than a missing endpoint, so dialFirst returns its error. No daemon can listen at a
// default path that is too long, so that path counts as missing. A stranger ends the
// search where strangerEnds. The first path is that of the user's own daemon. If the user has a database of an own daemon, another
// daemon that answers is refused.
func dialFirst(ctx context.Context, paths []string, database string) (net.Conn, error) {
	var telling error
	for i, p := range paths {
		c, err := dialOne(ctx, p, "")
		var failed *DialError
		if err == nil && i > 0 && database != "" {
			_ = c.Close()
			return nil, &DialError{Path: p, Err: &OwnDatabaseError{Database: database, Socket: paths[0]}}
		}
		if err == nil || ctx.Err() != nil || strangerEnds && errors.As(err, &failed) && failed.Stranger() {
			return c, err
		}
		missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, errTooLong)
		if telling == nil && !missing {
			telling = err
		}
	}
	if telling != nil {
		return nil, telling
	}
	return nil, &DialError{Path: strings.Join(paths, " or "), Err: fs.ErrNotExist}
}
