package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// Index is what the client remembers of a root, so that it reads only what has changed.
// It is a cache: without it, all files are read again.
type Index struct {
	Root    string
	Choice  Choice            // which files were wanted at the last scan
	Stored  map[string]string // by agent: the id of the tree that the agent's store has
	Tree    ckpt.Tree         // the newest tree, as it was found
	records map[string]record
}

// record is what is known about a file.
type record struct {
	entry    ckpt.TreeEntry
	modified int64 // nanoseconds
	changed  int64
	inode    uint64
	mode     uint32
	recent   bool // it had changed shortly before it was read, so its times may not reveal the next change
	tracked  bool
}

// indexVersion is the beginning of an index file.
const indexVersion = "ckpt-index 2\n"

// IndexPath returns the path of the index of a root. folder belongs to the user.
func IndexPath(folder, root string) string {
	sum := sha256.Sum256([]byte(root))
	return filepath.Join(folder, hex.EncodeToString(sum[:12])+".index")
}

// ReadIndex reads an index. It returns an empty index if the file is missing, damaged
// or of another version.
func ReadIndex(path, root string) *Index {
	empty := &Index{Root: root, Stored: map[string]string{}, records: map[string]record{}}
	text, err := os.ReadFile(path)
	if err != nil || len(text) < len(indexVersion)+sha256.Size || string(text[:len(indexVersion)]) != indexVersion {
		return empty
	}
	body, sum := text[len(indexVersion):len(text)-sha256.Size], text[len(text)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return empty
	}
	d := decoder{b: body}
	x := d.index()
	if d.bad || len(d.b) > 0 || x.Root != root {
		return empty
	}
	return x
}

// Write replaces the file of an index. It does not flush the file: if a loss of power
// damages it, it counts as missing.
func (x *Index) Write(path string) error {
	e := encoder{b: make([]byte, 0, 200*len(x.records)+1024)}
	e.b = append(e.b, indexVersion...)
	e.index(x)
	sum := sha256.Sum256(e.b[len(indexVersion):])
	f, err := os.CreateTemp(filepath.Dir(path), ".index-*.tmp") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(e.b, sum[:]...))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Lock waits until no other process works with the index at path, at most patience. It
// makes the folder if that is missing.
func Lock(path string, patience time.Duration) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		f, err := osfile.LockAt(path + ".lock")
		switch {
		case err == nil:
			return func() { _ = osfile.Unlock(f) }, nil
		case !errors.Is(err, osfile.ErrLocked):
			return nil, err
		case time.Now().After(end):
			return nil, &fs.PathError{Op: "lock", Path: path, Err: errors.New("another scan of this folder is running")}
		}
	}
}

type encoder struct{ b []byte }

func (e *encoder) number(n uint64) { e.b = binary.AppendUvarint(e.b, n) }
func (e *encoder) text(s string)   { e.number(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) flag(f bool) {
	if f {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) texts(list []string) {
	e.number(uint64(len(list)))
	for _, s := range list {
		e.text(s)
	}
}

func (e *encoder) index(x *Index) {
	e.text(x.Root)
	e.texts(x.Choice.Include)
	e.texts(x.Choice.Exclude)
	e.number(uint64(len(x.Stored)))
	for agent, id := range x.Stored {
		e.text(agent)
		e.text(id)
	}
	e.text(x.Tree.ID)
	e.text(x.Tree.GitHead)
	e.text(x.Tree.CapturedAt.String())
	e.flag(x.Tree.Complete)
	e.number(uint64(len(x.Tree.LeftOut)))
	for _, l := range x.Tree.LeftOut {
		e.text(l.Path)
		e.text(string(l.Why))
	}
	e.number(uint64(len(x.Tree.Entries)))
	for _, t := range x.Tree.Entries {
		e.entry(&t)
	}
	e.number(uint64(len(x.records)))
	for _, r := range x.records {
		e.record(&r)
	}
}

func (e *encoder) entry(t *ckpt.TreeEntry) {
	e.text(t.Path)
	e.text(t.Mode)
	e.number(uint64(t.Size))
	sum, _ := hex.DecodeString(t.SHA256)
	e.text(string(sum))
	e.text(t.Target)
}

func (e *encoder) record(r *record) {
	e.entry(&r.entry)
	e.number(uint64(r.modified))
	e.number(uint64(r.changed))
	e.number(r.inode)
	e.number(uint64(r.mode))
	e.flag(r.recent)
	e.flag(r.tracked)
}

// decoder reads what an encoder has written. bad is true if the bytes are something
// else.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) text() string {
	n := d.number()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) flag() bool {
	if len(d.b) == 0 {
		d.bad = true
		return false
	}
	f := d.b[0] == 1
	d.b = d.b[1:]
	return f
}

// count reads a number of things that take at least one byte each.
func (d *decoder) count() int {
	n := d.number()
	if n > uint64(len(d.b)) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoder) texts() (list []string) {
	for range d.count() {
		list = append(list, d.text())
	}
	return list
}

func (d *decoder) index() *Index {
	x := &Index{Root: d.text(), Stored: map[string]string{}}
	x.Choice = Choice{Include: d.texts(), Exclude: d.texts()}
	for range d.count() {
		agent := d.text()
		x.Stored[agent] = d.text()
	}
	x.Tree.Root = x.Root
	x.Tree.ID, x.Tree.GitHead = d.text(), d.text()
	if at := d.text(); at != "" {
		t, err := ckpt.ParseTime(at)
		x.Tree.CapturedAt = t
		d.bad = d.bad || err != nil
	}
	x.Tree.Complete = d.flag()
	for range d.count() {
		path := d.text()
		x.Tree.LeftOut = append(x.Tree.LeftOut, ckpt.LeftOut{Path: path, Why: ckpt.LeftOutBecause(d.text())})
	}
	n := d.count()
	x.Tree.Entries = make([]ckpt.TreeEntry, 0, n)
	for range n {
		x.Tree.Entries = append(x.Tree.Entries, d.entry())
	}
	n = d.count()
	x.records = make(map[string]record, n)
	for range n {
		r := record{entry: d.entry()}
		r.modified, r.changed, r.inode = int64(d.number()), int64(d.number()), d.number()
		r.mode, r.recent, r.tracked = uint32(d.number()), d.flag(), d.flag()
		x.records[r.entry.Path] = r
	}
	return x
}

func (d *decoder) entry() ckpt.TreeEntry {
	t := ckpt.TreeEntry{Path: d.text(), Mode: d.text(), Size: int64(d.number())}
	t.SHA256, t.Target = hex.EncodeToString([]byte(d.text())), d.text()
	return t
}
