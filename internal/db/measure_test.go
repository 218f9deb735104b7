package db_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// TestMeasureHistories measures what docs/PERFORMANCE.md says about growing
// histories: 1,000 saves, all kept, once as pieces and once whole, in turns.
// CKPTSIDECAR_MEASURE=1 go test -run Measure -v ./internal/db
func TestMeasureHistories(t *testing.T) {
	t.Parallel()
	if os.Getenv("CKPTSIDECAR_MEASURE") == "" {
		t.Skip("CKPTSIDECAR_MEASURE is not set")
	}
	text := realText(t)
	only := os.Getenv("CKPTSIDECAR_MEASURE")
	for _, h := range []struct {
		name  string
		saves int
		next  func(r *rand.Rand, i int, last []byte) []byte
	}{
		{"chat to 1.8 MiB", 1000, chatHistory(text, 1<<30)},
		{"compacting", 1000, chatHistory(text, 400)},
		{"edited files", 1000, editedFiles(text)},
		{"noise, 1 MiB", 60, func(r *rand.Rand, _ int, _ []byte) []byte { return noiseOf(r, 1<<20) }},
		{"noise, each 80th byte new", 60, changed(func(r *rand.Rand, b []byte) {
			for i := r.IntN(80); i < len(b); i += 80 {
				b[i]++
			}
		})},
		{"noise, each 200th byte new", 60, changed(func(r *rand.Rand, b []byte) {
			for i := r.IntN(200); i < len(b); i += 200 {
				b[i]++
			}
		})},
		{"noise, one byte new", 60, changed(func(r *rand.Rand, b []byte) { b[r.IntN(len(b))]++ })},
		{"noise, shuffled by 1 KiB", 60, changed(func(r *rand.Rand, b []byte) {
			r.Shuffle(len(b)>>10, func(i, j int) {
				x := bytes.Clone(b[i<<10 : (i+1)<<10])
				copy(b[i<<10:(i+1)<<10], b[j<<10:(j+1)<<10])
				copy(b[j<<10:(j+1)<<10], x)
			})
		})},
		{"short matches everywhere", 60, changed(func(r *rand.Rand, b []byte) {
			for i := 0; i+100 < len(b); i += 100 {
				copy(b[i:], noiseOf(r, 40))
			}
		})},
	} {
		if only == "1" || strings.Contains(h.name, only) {
			measure(t, h.name, h.saves, h.next)
		}
	}
}

type measured struct {
	store   *db.Store
	options db.Options
	times   []time.Duration
	ids     []string
	size    int64
	read    []time.Duration
}

func measure(t *testing.T, name string, saves int, next func(*rand.Rand, int, []byte) []byte) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	both := [2]*measured{{}, {}}
	for i, m := range both {
		m.options = options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
		m.options.LiveBytes = int64(-i)
		m.store = openWith(t, m.options)
		keepAll(t, m.store, "a")
		go m.store.Maintain(ctx)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var state []byte
	all := 0
	for i := range saves {
		state = next(r, i, state)
		all += len(state)
		for k := range both {
			m := both[(i+k)%2]
			begin := time.Now()
			saved, err := m.store.Save(ctx, ann, &ckpt.SaveRequest{ID: newID(t), Agent: "a", Kind: ckpt.KindRoutine, ContentType: "application/x", State: state})
			must(t, err)
			m.times = append(m.times, time.Since(begin))
			m.ids = append(m.ids, saved.ID)
		}
	}
	for _, m := range both {
		for range 100 {
			begin := time.Now()
			_, err := m.store.Checkpoint(ctx, ann, m.ids[r.IntN(len(m.ids))], true)
			must(t, err)
			m.read = append(m.read, time.Since(begin))
		}
	}
	cancel()
	for _, m := range both {
		must(t, m.store.Close())
		fmt.Sscan(sqlite3(t, "-readonly", m.options.Path, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"), &m.size)
		sound(t, m.options.Path)
	}
	tenth := saves - saves/10
	for i, m := range both {
		fmt.Printf("| %s, %.1f MB | %s | %.2f | %.0f | %.2f (%.2f) | %.2f (%.2f) |\n", name, float64(all)/1e6, [2]string{"pieces", "whole"}[i], float64(m.size)/1e6,
			float64(all)/float64(m.size), ms(m.times, 0.5), ms(m.times[tenth:], 0.5), ms(m.read, 0.5), ms(m.read, 0.95))
		os.Remove(m.options.Path)
	}
	fmt.Printf("  save p50 %.2f of whole, last tenth %.2f\n", ms(both[0].times, 0.5)/ms(both[1].times, 0.5), ms(both[0].times[tenth:], 0.5)/ms(both[1].times[tenth:], 0.5))
}

func ms(d []time.Duration, q float64) float64 {
	d = slices.Sorted(slices.Values(d))
	return d[int(q*float64(len(d)-1))].Seconds() * 1000
}

// realText is program text, as agents read and write it.
func realText(t *testing.T) [][]byte {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	must(t, err)
	var list [][]byte
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src", "net"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			var b []byte
			b, err = os.ReadFile(path)
			list = append(list, b)
		}
		return err
	})
	must(t, err)
	return list
}

func chatHistory(text [][]byte, most int) func(*rand.Rand, int, []byte) []byte {
	all := bytes.Join(text, nil)
	var messages []string
	at := 0
	return func(r *rand.Rand, i int, _ []byte) []byte {
		n := 900 + r.IntN(1600)
		quoted, _ := json.Marshal(string(all[at : at+n]))
		at += n
		messages = append(messages, `{"role":"user","content":`+string(quoted)+`}`)
		if len(messages) > most {
			messages = append([]string{fmt.Sprintf(`{"summary":"so far %d"}`, i)}, messages[most*3/4:]...)
		}
		return fmt.Appendf(nil, `{"step":%d,"messages":[%s],"updated":"2026-01-01T00:%02d:%02d"}`, i, strings.Join(messages, ","), i/60%60, i%60)
	}
}

func editedFiles(text [][]byte) func(*rand.Rand, int, []byte) []byte {
	all := bytes.Join(text, nil)
	files := map[string]string{}
	for i := range 20 {
		files[fmt.Sprintf("f%02d.go", i)] = string(text[100+i]) + string(text[50])
	}
	return func(r *rand.Rand, _ int, _ []byte) []byte {
		name := fmt.Sprintf("f%02d.go", r.IntN(20))
		b := files[name]
		at, from := r.IntN(len(b)-500), r.IntN(len(all)-500)
		files[name] = b[:at] + string(all[from:from+r.IntN(500)]) + b[at+r.IntN(500):]
		state, _ := json.Marshal(files)
		return state
	}
}

func noiseOf(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func changed(change func(*rand.Rand, []byte)) func(*rand.Rand, int, []byte) []byte {
	return func(r *rand.Rand, _ int, last []byte) []byte {
		if last == nil {
			return noiseOf(r, 1<<20)
		}
		b := bytes.Clone(last)
		change(r, b)
		return b
	}
}
