package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// wordSuffix is the suffix of the word file. It lies beside the database and holds the
// last mark that the fleet's engine has acknowledged.
const wordSuffix = ".fleet"

// wordEvery is how often that file is written while batches are shipped. An old word is
// never wrong: the engine has at least what it says.
const wordEvery = time.Second

// word is what an engine has acknowledged about a database.
type word struct {
	Database string     `json:"database"`
	Engine   string     `json:"engine"`
	Mark     fleet.Mark `json:"mark"`
	Beats    int64      `json:"beats,omitempty"` // how often the engine has heard from the database's host

	Taken []fleet.Taken `json:"taken,omitempty"` // runs that other hosts have claimed
	Gap   bool          `json:"gap,omitempty"`   // rows were archived before they were shipped, and not all runs were shipped whole since
}

// readWordFile reads the word file. A missing file gives an empty word.
func readWordFile(path string) (w word, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal(text, &w); err != nil {
		return w, fmt.Errorf("%s does not say what the fleet's engine has acknowledged: %w", path, err)
	}
	return w, nil
}

// readWord returns what an engine has acknowledged for a database, as far as the file
// knows. It ignores the word of another engine or of another database.
func readWord(path, database, engine string) (word, error) {
	w, err := readWordFile(path)
	if err != nil || w.Database != database || w.Engine != engine {
		return word{}, err
	}
	return w, nil
}

// recall loads what the word file knows. If the file cannot be read, nothing is known.
func (s *shipper) recall() {
	if s.wordFile == "" {
		return
	}
	w, err := readWord(s.wordFile, s.host.DB, s.engineID)
	if err != nil {
		s.log.Warn("what the fleet's engine acknowledged before is not known", "error", err)
	}
	s.gap = w.Gap
	if w.Mark.N > s.word.N {
		s.word = w.Mark
	}
}

// keepWord writes the word file: from time to time while batches are shipped, and soon
// if another host has claimed a run, or if all runs must be shipped whole. Only the
// shipper's own goroutine calls it.
func (s *shipper) keepWord(now bool) {
	is := kept{s.engineID, s.word, s.takenNow(), s.gap}
	same := slices.Equal(is.taken, s.kept.taken) && is.engine == s.kept.engine && is.gap == s.kept.gap
	if s.wordFile == "" || same && (is.mark == s.kept.mark || !now && time.Since(s.keptAt) < wordEvery) {
		return
	}
	text, err := json.Marshal(word{s.host.DB, is.engine, is.mark, s.healer.knows(), is.taken, is.gap})
	if err == nil {
		err = osfile.Write(s.wordFile, append(text, '\n'), 0o600)
	}
	if err != nil {
		s.log.Warn("what the fleet's engine has acknowledged cannot be kept beside the database", "file", s.wordFile, "error", err)
	}
	s.kept, s.keptAt = is, time.Now()
}

// fenceAsBefore refuses writes to the runs that other hosts had claimed when this
// daemon last ran, and returns these runs. The engine tells later what has changed
// since.
func fenceAsBefore(ctx context.Context, wordFile string, j *journal.Journal, database string) ([]fleet.Taken, error) {
	w, err := readWordFile(wordFile)
	if err != nil || w.Database != database || len(w.Taken) == 0 {
		return nil, err
	}
	_, err = j.Fence(ctx, w.Taken)
	return w.Taken, err
}
