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

// wordSuffix names the file beside a database that holds the last mark which the
// fleet's engine has acknowledged.
const wordSuffix = ".fleet"

// wordEvery is how often that file is written while batches are shipped. A word
// that is too old is never wrong: the engine has at least what it says.
const wordEvery = 10 * time.Second

// word is what an engine has acknowledged of a database.
type word struct {
	Database string     `json:"database"`
	Engine   string     `json:"engine"`
	Mark     fleet.Mark `json:"mark"`
	Beats    int64      `json:"beats,omitempty"` // how often the engine has heard of the database

	Taken []fleet.Taken `json:"taken,omitempty"` // runs that other hosts have claimed
}

// readWordFile reads the file. One that is not there says nothing.
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

// readWord answers the mark that an engine has acknowledged of a database, as far as a
// file knows. The word of another engine, or of another database, counts for nothing.
func readWord(path, database, engine string) (fleet.Mark, error) {
	w, err := readWordFile(path)
	if err != nil {
		return fleet.Mark{}, err
	}
	if w.Database != database || w.Engine != engine {
		return fleet.Mark{}, nil
	}
	return w.Mark, nil
}

// recall takes over what the file knows. Where it cannot be read, nothing is known.
func (s *shipper) recall() {
	if s.wordFile == "" {
		return
	}
	m, err := readWord(s.wordFile, s.host.DB, s.engineID)
	if err != nil {
		s.log.Warn("what the fleet's engine acknowledged before is not known", "error", err)
	}
	if m.N > s.word.N {
		s.word = m
	}
}

// keepWord writes the file: now and then while batches are shipped, and soon where
// another host has claimed a run. The shipper's own goroutine calls it.
func (s *shipper) keepWord(now bool) {
	is := kept{s.word, s.takenNow()}
	sameTaken := slices.Equal(is.taken, s.kept.taken)
	if s.wordFile == "" || sameTaken && (is.mark == s.kept.mark || !now && time.Since(s.keptAt) < wordEvery) {
		return
	}
	text, err := json.Marshal(word{s.host.DB, s.engineID, is.mark, s.healer.knows(), is.taken})
	if err == nil {
		err = osfile.Write(s.wordFile, append(text, '\n'), 0o600)
	}
	if err != nil {
		s.log.Warn("what the fleet's engine has acknowledged cannot be kept beside the database", "file", s.wordFile, "error", err)
	}
	s.kept, s.keptAt = is, time.Now()
}

// fenceAsBefore refuses writes to the runs that other hosts had claimed when this
// daemon ran last, and answers them. The engine tells later what has changed since.
func fenceAsBefore(ctx context.Context, wordFile string, j *journal.Journal, database string) ([]fleet.Taken, error) {
	w, err := readWordFile(wordFile)
	if err != nil || w.Database != database || len(w.Taken) == 0 {
		return nil, err
	}
	_, err = j.Fence(ctx, w.Taken)
	return w.Taken, err
}
