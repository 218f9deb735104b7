package db_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// closedDatabase returns a filled database that no process has open. It is a
// copy of one that is made once.
func closedDatabase(t testing.TB) string {
	t.Helper()
	aDatabase.once.Do(func() {
		from := makeDatabase(t)
		aDatabase.files = map[string][]byte{}
		for _, suffix := range []string{"", "-wal", "-shm"} {
			b, err := os.ReadFile(from + suffix)
			must(t, err)
			aDatabase.files[suffix] = b
		}
	})
	path := filepath.Join(t.TempDir(), "ckpt.db")
	for suffix, b := range aDatabase.files {
		write(t, path+suffix, b)
	}
	return path
}

var aDatabase struct {
	once  sync.Once
	files map[string][]byte // by the suffix that is added to the path
}

func makeDatabase(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	if err := s.EmptyWAL(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func sql(t testing.TB, path string, statements string) {
	t.Helper()
	sqlite3(t, path, statements)
}

// contents describes a file and the hash of its contents.
func contents(t testing.TB, path string) string {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !info.Mode().IsRegular() {
		return info.Mode().String()
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %d %x", info.Mode(), len(b), sha256.Sum256(b))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	must(t, os.WriteFile(path, b, 0o600))
}

// replace writes the contents of one file into another, whose inode stays, as
// cp does.
func replace(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	must(t, err)
	write(t, to, b)
}

// damageAt copies a file and overwrites some of its bytes.
func damageAt(t testing.TB, from, to string, at, n int) {
	t.Helper()
	b, err := os.ReadFile(from)
	must(t, err)
	copy(b[at:at+n], bytes.Repeat([]byte{0xa5}, n))
	write(t, to, b)
}

// noise returns a state that does not deflate.
func noise(seed uint64, size int) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	b := make([]byte, size)
	_, _ = r.Read(b)
	return b
}

func binary(agent string, kind ckpt.Kind, state []byte) *ckpt.SaveRequest {
	return &ckpt.SaveRequest{Agent: agent, Kind: kind, ContentType: "application/octet-stream", State: state}
}
