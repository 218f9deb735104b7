package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// HeadSuffix is the suffix of the file beside a database in which its daemon notes the head of the
// audit log: at start, at stop, after each backup and every hour. A start reports if the log is
// older than the file says, or another log.
const HeadSuffix = ".head"

// logEnd is where the audit log of a database ends, according to each place that records it.
type logEnd struct {
	last        ChainHead // the newest row
	broken      int64     // its number if its hash does not match its contents, else 0
	checkpoints int64     // the newest row that a checkpoint names; 0 unless the last daemon did not note its end
	beside      int64     // the newest row that has texts or a segment beside the log
	agents      bool      // whether there are agents: then the log is not empty
}

// logEnd reads the same few pages of a large database as of a small one.
func (s *Core) logEnd(ctx context.Context) (e logEnd, err error) {
	err = s.Engine.Writing().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM agents), max(coalesce((SELECT max(n) FROM act_texts), 0),
		coalesce((SELECT max(id) FROM segments), 0))`).Scan(&e.agents, &e.beside)
	if err != nil {
		return e, err
	}
	err = s.Engine.Writing().QueryRowContext(ctx, lastOfLog).Scan(&e.last.N, &e.last.Hash)
	if errors.Is(err, sql.ErrNoRows) {
		return e, nil
	}
	if err == nil {
		e.broken, err = brokenLink(ctx, s.Engine.Writing(), e.last.N-1)
	}
	return e, err
}

// The query for the newest row of the audit log.
const lastOfLog = `SELECT n, lower(hex(hash)) AS hash FROM acts ORDER BY n DESC LIMIT 1`

// HashOf is, in SQL, the hash of a row of the audit log, also of a removed row if the next row is here.
func HashOf(n string) string {
	return `coalesce((SELECT lower(hex(hash)) FROM acts
		WHERE n = ` + n + `), (SELECT hash FROM audit_links WHERE n = ` + n + `))`
}

// doubts lists the contradictions.
func (e *logEnd) doubts() (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if e.broken > 0 {
		add("row %d does not match its hash: it was added or changed", e.broken)
	}
	if e.last.N == 0 && e.agents {
		add("it is empty, though there are agents")
	}
	if e.checkpoints > e.last.N {
		add("it ends with row %d, and checkpoints were saved up to row %d", e.last.N, e.checkpoints)
	} else if e.beside > e.last.N {
		add("it ends with row %d, and its details go up to row %d", e.last.N, e.beside)
	}
	return list
}

// goOn is the row that the next row follows. No number is used twice, so that a gap remains where
// rows were removed.
func (e *logEnd) goOn() ChainHead {
	if used := max(e.checkpoints, e.beside); used > e.last.N {
		return ChainHead{N: used}
	}
	return e.last
}

// checkHead checks whether the audit log is still the one that the last daemon left, and sets the
// row that the next row follows. A contradiction does not prevent the start: it is reported.
func (s *Core) checkHead(ctx context.Context) error {
	end, err := s.logEnd(ctx)
	if err != nil {
		return err
	}
	var about []string
	if s.Opt.Lock == nil { // otherwise the older log was asked for
		if about, err = s.compareNote(ctx, &end); err != nil {
			return err
		}
	}
	if note := s.Trust.noted; note.N == 0 || len(about) > 0 || (ChainHead{note.N, note.Hash}) != end.last { // the last daemon was killed, or somebody wrote since
		if err := s.Engine.Writing().GetContext(ctx, &end.checkpoints, `SELECT coalesce(max(n), 0) FROM checkpoints`); err != nil {
			return err
		}
	}
	list := append(end.doubts(), about...)
	if len(list) > 0 {
		s.doubtLog(strings.Join(list, "; "))
	}
	s.setHead(end.goOn())
	return nil
}

// compareNote lists the contradictions between the log and the file beside the database.
func (s *Core) compareNote(ctx context.Context, end *logEnd) (list []string, err error) {
	path := s.Opt.Path + HeadSuffix
	note, err := readHeadNote(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return []string{fmt.Sprintf("%s, which keeps its head, cannot be read (%v)", path, err)}, nil
	}
	s.Trust.noted = *note
	if note.Doubt != "" {
		return []string{note.Doubt}, nil
	}
	var id, hash sql.NullString
	err = s.Engine.Writing().QueryRowContext(ctx, `SELECT (SELECT value FROM meta WHERE key = 'database_id'), `+HashOf(`?1`), note.N).Scan(&id, &hash)
	switch {
	case err != nil:
		return nil, err
	case note.Database != id.String:
		list = append(list, "it is the log of another database than the one of the last daemon")
	case note.N > end.last.N:
		list = append(list, fmt.Sprintf(
			"it ended with row %d on %s, and ends with row %d now: an older copy was put back, or rows were removed", note.N, note.At, end.last.N))
	case note.N > 0 && hash.String != note.Hash:
		list = append(list, fmt.Sprintf("row %d had another hash on %s: "+
			"the log was rewritten, or an older copy was put back and used", note.N, note.At))
	}
	return list, nil
}

func readHeadNote(path string) (*headNote, error) {
	f, err := osfile.OpenPlain(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return nil, err
	}
	note := new(headNote)
	return note, json.Unmarshal(b, note)
}

// writeHeadNote replaces the file as a whole. The new file has a fixed name until it is done, so
// that the next call overwrites what a crash has left.
func writeHeadNote(path string, note []byte, mode fs.FileMode) error {
	f, err := osfile.OpenPlain(path+".new", os.O_WRONLY|os.O_CREATE, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(note)
	if err := errors.Join(err, f.Truncate(int64(len(note))), f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return osfile.SyncFolder(filepath.Dir(path))
}

// doubtLog notes that the audit log was changed outside the daemon. It does not repeat an earlier
// note.
func (s *Core) doubtLog(what string) {
	s.Trust.mu.Lock()
	defer s.Trust.mu.Unlock()
	if s.Trust.noted.Doubt != "" {
		rest := slices.DeleteFunc(strings.Split(what, "; "), func(part string) bool { return strings.Contains(s.Trust.noted.Doubt, part) })
		what = strings.Join(append([]string{s.Trust.noted.Doubt}, rest...), "; ")
	}
	s.Trust.Doubt = what
	s.Log.Error("the audit log was changed outside the daemon", "what", what, "path", s.Opt.Path)
}

// NoteHead writes the head of the audit log to places that an intruder into the database does not
// reach: the daemon's log, and the file beside the database. why is the reason for the note.
func (s *Core) NoteHead(why string) {
	head := s.showHead()
	s.Log.Info("audit head", "n", head.N, "hash", head.Hash, "database", s.ID, "why", why)
	if s.Engine.ReadOnly() != "" || s.Engine.Fault() != nil { // do not touch a disk that fails
		return
	}
	s.Trust.mu.Lock()
	defer s.Trust.mu.Unlock()
	note := headNote{Database: s.ID, N: head.N, Hash: head.Hash, At: ckpt.At(s.Opt.Now())}
	if s.Trust.Doubt != "" { // a later check must compare with the previous head
		note = s.Trust.noted
		note.Doubt = s.Trust.Doubt
		if note.Database == "" {
			note.Database = s.ID
		}
	}
	if note == s.Trust.noted {
		return
	}
	b, err := json.Marshal(&note)
	if err == nil {
		err = writeHeadNote(s.Opt.Path+HeadSuffix, append(b, '\n'), s.Opt.Mode)
	}
	if err != nil {
		s.Log.Warn("the file that keeps the head of the audit log beside the database cannot be written", "file", s.Opt.Path+HeadSuffix, "error", err)
		return
	}
	s.Trust.noted = note
}
