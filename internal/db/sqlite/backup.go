package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// How the names of the folders begin in which Backup and Make make their files.
const (
	unfinished = ".backup-"
	unmade     = ".making-"
)

// SweepUnfinished removes what killed calls of Backup and Make have left in a folder, if nobody has
// changed it since a time.
func SweepUnfinished(folder string, since time.Time) error {
	list, err := os.ReadDir(folder)
	for _, entry := range list {
		made := filepath.Join(folder, entry.Name())
		info, missing := os.Lstat(filepath.Join(made, "ckpt.db"))
		ours := strings.HasPrefix(entry.Name(), unfinished) || strings.HasPrefix(entry.Name(), unmade)
		if ours && entry.IsDir() && missing == nil && info.ModTime().Before(since) {
			err = errors.Join(err, os.RemoveAll(made))
		}
	}
	return err
}

// RemoveUnfinished removes what calls of Backup in a process that was killed have left in a folder.
func RemoveUnfinished(folder string, pid int) error {
	return removeBeginning(folder, unfinishedOf(pid))
}

func unfinishedOf(pid int) string { return unfinished + strconv.Itoa(pid) + "-" }

// Backup writes a copy of a database, also while another process uses it. The copy gets its name
// only after approve has accepted it and it is on disk. Backup never replaces a file.
func Backup(ctx context.Context, path, out string, approve func(copied string) error) error {
	if _, err := os.Lstat(out); err == nil {
		return &OperatorError{fmt.Sprintf("%s exists, and a backup never replaces a file: name another file", out), nil}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return &OperatorError{fmt.Sprintf("%s cannot be the name of a backup", out), err}
	}
	if _, err := os.Lstat(path); err != nil {
		return Missing("there is no database to back up", err)
	}
	folder, err := os.MkdirTemp(filepath.Dir(out), unfinishedOf(os.Getpid())) // closed to others, so that none reads it half-made
	if err != nil {
		return &OperatorError{"the backup's folder cannot be written", err}
	}
	defer os.RemoveAll(folder)
	source, err := openSource(ctx, path)
	if err != nil {
		return err
	}
	defer source.close()
	made, err := source.copyTo(ctx, filepath.Join(folder, "ckpt.db"))
	if err != nil {
		return err
	}
	defer made.close()
	if err := approve(made.path); err != nil {
		return err
	}
	return made.publish(out)
}

// source is a database to copy. Its files are open, so that a process that has given up the rights to open them can
// still read it.
type source struct {
	conn    *sqlx.Conn
	closeDB func()
}

func openSource(ctx context.Context, path string) (*source, error) {
	db, closeDB, err := OpenBeside(path, 1)
	if err != nil {
		return nil, err
	}
	s := &source{closeDB: closeDB}
	var tables int64
	if s.conn, err = db.Connx(ctx); err == nil {
		err = s.conn.GetContext(ctx, &tables, `SELECT count(*) FROM sqlite_schema`) // SQLite opens its files at the first read
	}
	if err != nil {
		s.close()
		if denied := NotReadable(path, err); denied != err {
			return nil, denied
		}
		return nil, fmt.Errorf("the database cannot be read: %w", err)
	}
	return s, nil
}

func (s *source) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.closeDB()
}

// copied is a finished copy of a database, with the handle that identifies it: its name may lie in a folder in which
// another user can exchange files.
type copied struct {
	path string
	file *os.File
}

// copyTo copies the database from one snapshot into a new file. SQLite may only fill this file. It may not create one,
// because it would follow a link to any place.
func (s *source) copyTo(ctx context.Context, path string) (_ *copied, err error) {
	c := &copied{path: path}
	if c.file, err = osfile.OpenPlain(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	if _, err = s.conn.ExecContext(ctx, `VACUUM INTO ?`, dsn(path, "rw", nil)); err != nil {
		err = fmt.Errorf("the database cannot be copied: %w", err)
	} else {
		err = c.check(path)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// check says whether a path names the copy.
func (c *copied) check(path string) error {
	ours, err := c.file.Stat()
	if err != nil {
		return err
	}
	named, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(ours, named) || ours.Size() == 0 {
		return fmt.Errorf("%s is not the file that was written: another program replaced it", path)
	}
	return nil
}

func (c *copied) close() { _ = c.file.Close() }

// publish flushes a finished copy and gives it its name, which must be free.
func (c *copied) publish(name string) error {
	if err := errors.Join(c.file.Chmod(0o600), c.file.Sync()); err != nil {
		return err
	}
	if err := os.Link(c.path, name); err != nil { // unlike rename, it never replaces
		return &OperatorError{fmt.Sprintf("the copy cannot get the name %s: name a free one, in a folder whose file system has hard links", name), err}
	}
	if err := c.check(name); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	c.close()
	return errors.Join(os.Remove(c.path), osfile.SyncFolder(filepath.Dir(name)))
}

// Make writes a new database file beside existing files: fill writes the contents. The file gets
// its name only after approve has accepted it and it is on disk. Make never replaces a file.
func Make(ctx context.Context, out string, fill func(*sqlx.Conn) error, approve func(made string) error) error {
	folder, err := os.MkdirTemp(filepath.Dir(out), unmade)
	if err != nil {
		return &OperatorError{"the folder cannot be written", err}
	}
	defer os.RemoveAll(folder)
	made := &copied{path: filepath.Join(folder, "ckpt.db")}
	if made.file, err = osfile.OpenPlain(made.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return err
	}
	defer made.close()
	if err := fillNew(ctx, made.path, fill); err != nil {
		return err
	}
	if err := errors.Join(made.check(made.path), approve(made.path)); err != nil {
		return err
	}
	return made.publish(out)
}

func fillNew(ctx context.Context, path string, fill func(*sqlx.Conn) error) error {
	db, err := pool(path, "rw", 1, []string{"journal_mode(OFF)", "synchronous(OFF)", "temp_store(2)", "trusted_schema(0)"})
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Connx(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return fill(conn)
}

// Fill makes a new database file that nobody else has, and lets fill write it. Nothing is synced to disk.
func Fill(ctx context.Context, path string, fill func(*sqlx.Conn) error) error {
	file, err := osfile.OpenPlain(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), fillNew(ctx, path, fill))
}
