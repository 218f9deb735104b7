package db_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
)

// FuzzImport imports lines that no store wrote, with a correct last line,
// because an attacker would add one. The store accepts or refuses them, and is
// intact in both cases.
func FuzzImport(f *testing.F) {
	agent := `{"type":"agent","agent":"a","owner":"uid:1","created_at":"2026-01-01T00:00:00.000Z","policy_at":"2026-01-01T00:00:00.000Z","policy":{}}` + "\n"
	begin := `{"type":"ckptsidecar_export","version":1}` + "\n"
	f.Add(begin + agent + `{"type":"checkpoint","run":"main","row":{"id":"019a0000-0000-7000-8000-000000000001","seq":1,"kind":"routine","created_at":"2026-01-01T00:00:00.000Z","size":2,"sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","content_type":"application/json"},"state":{}}` + "\n" +
		`{"type":"run","run":"main","row":{"status":"running","epoch":1,"attempt":1,"started_at":"2026-01-01T00:00:00.000Z","updated_at":"2026-01-01T00:00:00.000Z","life":1,"last_seq":1}}` + "\n")
	f.Add(begin)
	f.Add(begin + agent + agent)
	f.Add("{}\n")
	f.Fuzz(func(t *testing.T, body string) {
		body = sealLines(body)
		into := filepath.Join(t.TempDir(), "ckpt.db")
		s := openWith(t, options(into, newClock()))
		_, err := s.Import(t.Context(), bob, ckpt.ImportRequest{}, strings.NewReader(body))
		switch code := ckpt.CodeOf(err); {
		case code == ckpt.CodeInternal || code == ckpt.CodeCorrupt:
			t.Errorf("the answer is %s: %v", code, err)
		case err != nil && s.Ready(t.Context()) != nil:
			t.Errorf("after a refused import: %v", s.Ready(t.Context()))
		}
		_, err = s.Save(t.Context(), bob, request("after", ckpt.KindRoutine, `1`))
		must(t, err)
		must(t, s.Close())
		sound(t, into)
	})
}

// FuzzDatabase opens databases with overwritten bytes. The result must be an
// error, or states that match their hashes, and never a panic.
func FuzzDatabase(f *testing.F) {
	path := filepath.Join(f.TempDir(), "ckpt.db")
	s, err := db.Open(f.Context(), options(path, newClock()))
	must(f, err)
	for i, state := range []string{`{"b":1}`, `"` + strings.Repeat("text that deflates ", 500) + `"`, `"` + strings.Repeat("text that deflates ", 520) + `"`} {
		_, err := s.Save(f.Context(), ann, request("a", ckpt.KindRecovery, state))
		must(f, err)
		_, _, err = s.BeginStep(f.Context(), ann, ckpt.RunRef{Agent: "a"}, ckpt.StepRequest{Key: fmt.Sprint(i), Name: "look"})
		must(f, err)
	}
	must(f, s.EmptyWAL())
	must(f, s.Close())
	whole, err := os.ReadFile(path)
	must(f, err)
	f.Add(uint32(0), []byte("SQLite format 4"), uint32(0), []byte{})
	f.Add(uint32(18), []byte{1, 1}, uint32(20), []byte{200})
	f.Add(uint32(28), []byte{0xff, 0xff, 0xff, 0xff}, uint32(36), []byte{1})
	f.Add(uint32(60), []byte{0, 0, 0, 99}, uint32(68), []byte{0})
	for page := uint32(0); int(page)*4096 < len(whole); page += 2 {
		f.Add(page*4096, []byte{13, 0, 0, 0, 9}, page*4096+4000, []byte{0xff, 0x81, 0x80, 0x80})
	}
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, at2 uint32, patch2 []byte) {
		bad := bytes.Clone(whole)
		copy(bad[int(at)%len(bad):], patch)
		copy(bad[int(at2)%len(bad):], patch2)
		file := filepath.Join(t.TempDir(), "bad.db")
		write(t, file, bad)
		hostileFile(t, file)
	})
}

func hostileFile(t *testing.T, file string) {
	t.Helper()
	var operator *db.OperatorError
	if _, err := audit.Verify(t.Context(), file, nil); err != nil && !errors.As(err, &operator) {
		t.Errorf("verify: %T %v", err, err)
	}
	s, err := db.Open(t.Context(), options(file, newClock()))
	if err != nil {
		return
	}
	defer s.Close()
	page, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a"})
	if err == nil {
		for _, c := range page.Checkpoints {
			got, err := s.Checkpoint(t.Context(), ann, c.ID, true)
			if err == nil && hashOf(string(got.State)) != got.SHA256 {
				t.Errorf("a false state of %s is served", c.ID)
			}
		}
	}
	_, _ = s.Steps(t.Context(), ann, ckpt.RunRef{Agent: "a"}, ckpt.ListFilter{})
	_, _ = s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `2`)) // it is saved or refused
}
