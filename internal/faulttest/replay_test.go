//go:build linux

package faulttest

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

func init() { addRow("F9", "torn and reordered writes, after a power loss", true, tornWrites) }

// sector is the number of bytes that a disk writes completely or not at all.
const sector = 512

// event is one action of a recorded session on its files, or one line that it
// printed.
type event struct {
	call string // pwrite64, ftruncate, fsync, create, unlink, or said
	path string
	at   int64  // the offset of a write; the size of a truncation
	data []byte // the data of a write; the printed line
}

var (
	tracedFile = regexp.MustCompile(`^(\d+)<(.*?)>(?:, )?(.*)$`)
	tracedPath = regexp.MustCompile(`^(?:AT_FDCWD(?:<.*?>)?, )?"(.*?)"(.*)$`)
)

// recordCalls plays a session and returns all its events.
func recordCalls(t *testing.T, strace string, set session) (events []event) {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "trace")
	play(t, set, strace, "-f", "-qq", "-y", "-xx", "--signal=none", "-s", "4000000", "-o", trace, "-e", "trace=open,openat,pwrite64,write,fsync,fdatasync,ftruncate,unlink,unlinkat")
	f, err := os.Open(trace)
	must(t, err)
	defer f.Close()
	lines, begun := bufio.NewScanner(f), map[string]string{}
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		thread, text, _ := strings.Cut(lines.Text(), " ")
		text = strings.TrimSpace(text)
		if start, cut := strings.CutSuffix(text, " <unfinished ...>"); cut {
			begun[thread] = start
			continue
		}
		if _, rest, resumed := strings.Cut(text, " resumed>"); resumed {
			text = begun[thread] + rest
		}
		if e, ok := readEvent(t, text); ok {
			events = append(events, e)
		}
	}
	must(t, lines.Err())
	return events
}

// readEvent reads a line of the trace. A call that failed is no event.
func readEvent(t *testing.T, text string) (e event, ok bool) {
	t.Helper()
	call, rest, _ := strings.Cut(text, "(")
	end := strings.LastIndex(rest, ") ")
	if end < 0 || strings.Contains(rest[end:], "= -1") {
		return e, false
	}
	args := rest[:end]
	switch call {
	case "open", "openat", "unlink", "unlinkat":
		m := tracedPath.FindStringSubmatch(args)
		opens := strings.HasPrefix(call, "open")
		if m == nil || opens && !strings.Contains(m[2], "O_CREAT") {
			return e, false
		}
		return event{call: map[bool]string{true: "create", false: "unlink"}[opens], path: plain(t, m[1])}, true
	}
	m := tracedFile.FindStringSubmatch(args)
	if m == nil {
		return e, false
	}
	e = event{call: call, path: plain(t, m[2])}
	switch call {
	case "fdatasync":
		e.call = "fsync"
	case "ftruncate":
		e.at = atoi(t, m[3])
	case "pwrite64":
		data, rest, _ := strings.Cut(strings.TrimPrefix(m[3], `"`), `", `)
		_, at, _ := strings.Cut(rest, ", ")
		e.data, e.at = []byte(plain(t, data)), atoi(t, at)
	case "write":
		data, _, _ := strings.Cut(strings.TrimPrefix(m[3], `"`), `", `)
		e.call, e.data = "said", []byte(plain(t, data))
		return e, m[1] == "1"
	}
	return e, true
}

func atoi(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	must(t, err)
	return n
}

// plain decodes \x41\x42.
func plain(t *testing.T, text string) string {
	t.Helper()
	if !strings.HasPrefix(text, `\x`) {
		return text
	}
	b, err := hex.DecodeString(strings.ReplaceAll(text, `\x`, ""))
	must(t, err)
	return string(b)
}

// disk is what a power loss can leave of the files in one folder.
type disk struct {
	names   map[string]bool    // names that are certainly there
	entries []event            // creations and removals that are not covered by a flush of the folder
	files   map[string][]byte  // contents that are certainly there
	pending map[string][]event // changes that are not covered by a flush
}

func newDisk() *disk {
	return &disk{names: map[string]bool{}, files: map[string][]byte{}, pending: map[string][]event{}}
}

// do applies one event to the disk. folder is the folder that holds the files.
func (d *disk) do(e event, folder string) {
	switch {
	case e.call == "fsync" && e.path == folder:
		for _, name := range d.entries {
			d.enter(name)
		}
		d.entries = nil
	case filepath.Dir(e.path) != folder || e.call == "said":
	case e.call == "create" || e.call == "unlink":
		d.entries = append(d.entries, e)
	case e.call == "fsync":
		for _, change := range d.pending[e.path] {
			d.files[e.path] = change.apply(d.files[e.path])
		}
		delete(d.pending, e.path)
	default:
		d.pending[e.path] = append(d.pending[e.path], e)
	}
}

func (d *disk) enter(e event) {
	if e.call == "create" {
		d.names[e.path] = true
		return
	}
	delete(d.names, e.path)
}

// apply applies a change to the contents of a file.
func (e event) apply(to []byte) []byte {
	size := e.at + int64(len(e.data))
	if e.call == "ftruncate" {
		return append(slices.Clone(to[:min(e.at, int64(len(to)))]), make([]byte, max(0, e.at-int64(len(to))))...)
	}
	if int64(len(to)) < size {
		to = append(to, make([]byte, size-int64(len(to)))...)
	}
	copy(to[e.at:], e.data)
	return to
}

// lose writes a state that a power loss can leave: the first few of the names,
// because a file system keeps their order, and any of the changes of each file,
// torn where a disk can tear them.
func (d *disk) lose(t *testing.T, random *rand.Rand, to string) {
	t.Helper()
	names := maps.Clone(d.names)
	after := disk{names: names}
	for _, e := range d.entries[:random.IntN(len(d.entries)+1)] {
		after.enter(e)
	}
	odds := random.IntN(5) // at one extreme hardly anything is lost, at the other nearly everything
	for name := range names {
		data := slices.Clone(d.files[name])
		for _, change := range d.pending[name] {
			switch n := random.IntN(6); {
			case n < odds:
			case n == odds && change.call == "pwrite64":
				data = change.tear(random, data)
			default:
				data = change.apply(data)
			}
		}
		if strings.HasSuffix(name, "-shm") { // it is created again after a start
			continue
		}
		must(t, os.WriteFile(filepath.Join(to, filepath.Base(name)), data, 0o600))
	}
}

// tear applies some of the sectors of a write.
func (e event) tear(random *rand.Rand, data []byte) []byte {
	for at := int64(0); at < int64(len(e.data)); {
		end := min((e.at+at)/sector*sector+sector-e.at, int64(len(e.data)))
		if random.IntN(2) == 0 {
			data = event{call: e.call, at: e.at + at, data: e.data[at:end]}.apply(data)
		}
		at = end
	}
	return data
}

// tornWrites is F9: the power can fail at every moment of a recorded session.
// Each write that was not flushed can then be there, torn, or missing.
func tornWrites(t *testing.T) {
	states := 2000
	if isShort() {
		states = 150
	}
	x := newTrial(t, 2*len(acts))
	set := session{DB: x.place(), Acts: x.acts}
	events := recordCalls(t, x.strace, set)
	if len(events) < 200 {
		t.Fatalf("only %d events were recorded", len(events))
	}
	random, bad := newRand(t, 0), 0
	for range states {
		if !x.powerLoss(random, events, set.DB) {
			bad++
		}
	}
	note(t, "%d states made of %d recorded events; bad: %d", states, len(events), bad)
}

// powerLoss makes one state and returns whether it is as it must be.
func (x *trial) powerLoss(random *rand.Rand, events []event, path string) bool {
	when := random.IntN(len(events) + 1)
	d, said := newDisk(), []string{}
	for _, e := range events[:when] {
		d.do(e, filepath.Dir(path))
		if e.call == "said" {
			said = append(said, strings.Fields(strings.ReplaceAll(string(e.data), " ", "\x00"))...)
		}
	}
	for i := range said {
		said[i] = strings.ReplaceAll(said[i], "\x00", " ")
	}
	p, to := progressOf(0, said), x.place()
	defer os.RemoveAll(filepath.Dir(to))
	d.lose(x.t, random, filepath.Dir(to))
	err := x.holds(to, p)
	lost := 0
	if err != nil {
		lost = 1
		x.t.Errorf("power loss after event %d of %d, %d acts acknowledged: %v", when, len(events), p.done, err)
	}
	count(x.t, figures{rounds: 1, points: 1, acked: p.acked(), lost: lost})
	return err == nil
}

// holds opens a database after a power loss, as the daemon does, and returns
// what is wrong with it.
func (x *trial) holds(path string, p progress) error {
	s, err := db.Open(x.t.Context(), ledger.Options{Path: path, Retention: sessionRetention})
	if err != nil {
		return fmt.Errorf("it does not open: %w", err)
	}
	err = s.Ready(x.t.Context())
	if closing := s.Close(); err != nil || closing != nil {
		return fmt.Errorf("it is not ready: %v, %v", err, closing)
	}
	held, err := digest(path)
	if err != nil || !x.golden.mayHold(p, held) {
		return fmt.Errorf("it holds %s, %v, not %s (next act unknown: %t)", held, err, x.golden[p.done], p.unknown)
	}
	report, err := audit.Verify(x.t.Context(), path, nil)
	if err == nil && len(report.Problems) > 0 {
		err = fmt.Errorf("verify: %s", report.Problems[0])
	}
	return err
}
