package archive

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// contents describes what an export holds, without its rows and states.
type contents struct {
	agents []*agentSeen
	has    map[string]bool // the ids of its checkpoints, findings and prompts
}

// agentSeen is an agent of an export.
type agentSeen struct {
	name      string
	target    string           // the name that it gets here
	secrets   ckpt.SecretsMode // what its policy says here
	owner     string
	createdAt ckpt.Time
	policyAt  ckpt.Time
	policy    []byte
	runs      map[string]*runSeen
	order     []*runSeen // the runs whose line was read
	marks     map[string]markSeen
	threads   map[ckpt.GraphThread]bool
	files     filesSeen
}

// markSeen is what has changed about a checkpoint after its line was written.
type markSeen struct {
	gone    bool
	labels  ckpt.Labels
	pinned  bool
	suspect bool
}

// runSeen is a run of an export.
type runSeen struct {
	name       string // in the file: see lifeKey
	base       string // of all its lives
	life       int64
	called     string // what it is called here
	declared   bool
	startedAt  string
	status     ckpt.RunStatus
	epoch      int64
	attempt    int64
	lastSeq    int64
	lastEvent  int64
	ended      bool
	alive      bool
	unscreened bool   // it has not been screened for secrets
	damaged    string // what of it cannot be read, "" if nothing

	seq      int64            // of its newest checkpoint so far
	ids      []string         // of its first checkpoint and its newest so far
	event    int64            // of its newest event so far
	keys     map[string]bool  // of its rows
	attempts map[string]int64 // of its operations

	present  bool  // it exists here already
	there    int64 // the id of the run that exists
	half     int64 // the run here whose import has not ended, 0 for none
	id       int64 // the id of the run that was made
	disowned bool
}

func (a *agentSeen) run(name string) *runSeen {
	r := a.runs[name]
	if r == nil {
		base, _, _ := strings.Cut(name, "#")
		r = &runSeen{name: name, base: base, keys: map[string]bool{}, attempts: map[string]int64{}}
		a.runs[name] = r
	}
	return r
}

// lifeKey names a life of a run in the lines of an export: main, main#2, main#3, … It does not change
// while the export is written, though a life that ends is called main~1 from then on.
const lifeKey = `r.base || CASE r.life WHEN 1 THEN '' ELSE '#' || r.life END`

// checkLifeKey refuses what is no lifeKey.
func checkLifeKey(key string) error {
	base, life, later := strings.Cut(key, "#")
	if err := ckpt.CheckRunName(base); err != nil || !later {
		return err
	}
	if n, err := strconv.ParseInt(life, 10, 64); err != nil || n < 2 || strconv.FormatInt(n, 10) != life {
		return fmt.Errorf("%q names no life of a run", cut(key))
	}
	return nil
}

// nameLives says what each life of the file is called: the last one main, the one before main~1.
func (a *agentSeen) nameLives() error {
	for _, r := range a.order {
		ago := 0
		for _, o := range a.order {
			switch {
			case o.base != r.base || o == r:
			case o.life == r.life:
				return fmt.Errorf("life %d of run %s comes twice", r.life, r.base)
			case o.life > r.life:
				ago++
			}
		}
		r.called = ckpt.LifeName(r.base, ago)
	}
	return nil
}

// lines reads the lines of an export with their numbers.
type lines struct {
	in     *bufio.Reader
	number int64
}

func readLines(f *os.File) (*lines, error) {
	_, err := f.Seek(0, io.SeekStart)
	return &lines{in: bufio.NewReaderSize(f, 256<<10)}, err
}

// next returns a line with its line break, and io.EOF after the last line.
func (l *lines) next() ([]byte, *exportLine, error) {
	b, err := l.in.ReadBytes('\n')
	if err == io.EOF && len(b) > 0 {
		return nil, nil, ckpt.Errorf(ckpt.CodeInvalid, "line %d of the export is cut off: nothing was changed", l.number+1)
	}
	if err != nil {
		return nil, nil, err
	}
	l.number++
	var line exportLine
	if err := jsontext.Decode(bytes.TrimRight(b, "\n"), &line); err != nil {
		return nil, nil, ckpt.Errorf(ckpt.CodeInvalid, "line %d of the export is wrong: %v; nothing was changed", l.number, err)
	}
	return b, &line, nil
}

// each reads a checked export again, and calls do with each line between the first and the last,
// and the agent that the line belongs to.
func (c *contents) each(f *os.File, do func(*exportLine, *agentSeen) error) error {
	l, err := readLines(f)
	if err != nil {
		return err
	}
	n := -1
	for {
		_, line, err := l.next()
		if err != nil {
			return err
		}
		switch line.Type {
		case lineBegin:
			continue
		case lineAgent:
			n++
		case lineEnd:
			return nil
		}
		if err := do(line, c.agents[n]); err != nil {
			return err
		}
	}
}

// checking is the state of the first reading of an export.
type checking struct {
	*contents
	begun bool // the first line was read
	agent *agentSeen
	open  *runSeen // whose rows are being read
	kinds map[string]*kindCount
	names map[string]bool
}

// cut shortens a text for use as a name, which has no control characters.
func cut(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}

// state returns the state of a line.
func (l *exportLine) state() ([]byte, error) {
	if l.Base64 == nil {
		return []byte(l.State), nil
	}
	state, err := base64.StdEncoding.DecodeString(*l.Base64)
	if err != nil {
		return nil, errors.New("state_base64 is not base64")
	}
	return state, nil
}

// exportLine is any line of an export.
type exportLine struct {
	Type    string `json:"type"`
	Version int    `json:"version,omitempty"`

	// For an agent.
	Agent     string          `json:"agent,omitempty"`
	Owner     string          `json:"owner,omitempty"`
	CreatedAt *ckpt.Time      `json:"created_at,omitempty"`
	PolicyAt  *ckpt.Time      `json:"policy_at,omitempty"`
	Policy    json.RawMessage `json:"policy,omitempty"`

	// For a run and its rows.
	Run        string          `json:"run,omitempty"`
	OwnerAlive bool            `json:"owner_alive,omitempty"`
	Unscreened bool            `json:"unscreened,omitempty"` // it comes from another program and was not screened for secrets
	Row        json.RawMessage `json:"row,omitempty"`
	State      json.RawMessage `json:"state,omitempty"`        // a JSON state on one line, byte for byte
	Base64     *string         `json:"state_base64,omitempty"` // any other state
	Kind       string          `json:"kind,omitempty"`         // the kind of a damaged row
	Reason     string          `json:"reason,omitempty"`

	// For the last line.
	Lines  int64               `json:"lines,omitempty"`
	Kinds  map[string]kindSums `json:"kinds,omitempty"`
	SHA256 string              `json:"sha256,omitempty"`
}

// kindSums is what the last line says of all lines of a kind.
type kindSums struct {
	Lines  int64  `json:"lines"`
	SHA256 string `json:"sha256"`
}

// filesSeen is what an export has said so far of an agent's files.
type filesSeen struct {
	contents map[string]bool
	trees    map[string]bool
}

type kindCount struct {
	lines int64
	sum   hash.Hash
}
