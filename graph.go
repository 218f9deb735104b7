package ckptsidecar

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// The terms of LangGraph's checkpointers. docs/LANGGRAPH.md explains them.

// The limits of a checkpointer's requests.
const (
	MaxGraphName     = 4096 // bytes of the name of a thread, a namespace, a checkpoint, a task or a channel
	maxGraphChannels = 10_000
	maxGraphWrites   = 10_000 // in one call
)

// ContentTypeGraph is the content type of a state that is a LangGraph checkpoint.
const ContentTypeGraph = "application/vnd.ckptsidecar.langgraph+json"

// GraphTasks is the LangGraph channel on which tasks send to nodes.
const GraphTasks = "__pregel_tasks"

// GraphThread names a thread and a namespace in it. The namespace "" is the one of the root graph.
type GraphThread struct {
	Thread string `json:"thread"`
	NS     string `json:"ns"`
}

// Check refuses names that cannot be stored.
func (t GraphThread) Check() error {
	if err := checkGraphName("thread", t.Thread); err != nil {
		return err
	}
	return checkGraphText("ns", t.NS)
}

// RunName returns the name of the run of the thread and the namespace: readable, and different for each.
func (t GraphThread) RunName() string {
	sum := sha256.Sum256([]byte(t.Thread + "\x00" + t.NS))
	name := plainName(t.Thread)
	if t.NS != "" {
		name += "+" + plainName(t.NS)
	}
	return name + "-" + hex.EncodeToString(sum[:8])
}

// plainName returns the beginning of a text, with only the characters that the name of a run may have.
func plainName(text string) string {
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("._:@-", r)) {
			return r
		}
		return '-'
	}, text[:min(len(text), 64)])
	if name = strings.TrimLeft(name, "._:@-"); name == "" {
		return "t"
	}
	return name
}

// GraphBytes is a value that the daemon does not interpret.
type GraphBytes struct {
	Type string
	Data []byte
}

// GraphValue is the value of a channel in a checkpoint.
type GraphValue struct {
	Channel string
	Version JSON // as the checkpoint has it; nil for none
	GraphBytes
	Tag  string // identifies these exact bytes while the daemon runs; "" if the caller did not ask, or the value is small
	Held bool   // the caller has the value of this tag, so Data is left out
}

// GraphTagFrom is the smallest size in bytes of a value that gets a tag.
const GraphTagFrom = 256

// GraphWrite is a write of a task.
type GraphWrite struct {
	Task    string
	Idx     int64 // below 0 for LangGraph's special channels
	Path    string
	Channel string
	GraphBytes
}

// GraphPut asks for a checkpoint.
type GraphPut struct {
	Agent string
	GraphThread
	Parent     Ref
	Checkpoint JSON // the LangGraph checkpoint, without channel_values
	Metadata   JSON // an object; nil for none
	Values     []GraphValue
	Carry      []string // channels that keep the values of the parent
}

// Check refuses an invalid request. It does not read the metadata: internal/wellformed does.
func (p *GraphPut) Check() error {
	if err := p.GraphThread.Check(); err != nil {
		return err
	}
	if p.Parent != "" {
		if err := checkGraphName("parent", string(p.Parent)); err != nil {
			return err
		}
	}
	return p.checkChannels()
}

// checkChannels refuses a channel that occurs twice.
func (p *GraphPut) checkChannels() error {
	if n := len(p.Values) + len(p.Carry); n > maxGraphChannels {
		return Errorf(CodeInvalid, "there are %d channels: at most %d are allowed", n, maxGraphChannels)
	}
	seen := make(map[string]bool, len(p.Values)+len(p.Carry))
	check := func(channel string) error {
		if seen[channel] {
			return Errorf(CodeInvalid, "the channel %q is listed twice", cut(channel))
		}
		seen[channel] = true
		return checkGraphName("channel", channel)
	}
	for i := range p.Values {
		if err := check(p.Values[i].Channel); err != nil {
			return err
		}
		if err := checkGraphText("type", p.Values[i].Type); err != nil {
			return err
		}
	}
	for _, channel := range p.Carry {
		if err := check(channel); err != nil {
			return err
		}
	}
	return nil
}

// GraphHead holds the members of LangGraph's checkpoint that the daemon reads.
type GraphHead struct {
	ID       string
	Format   float64 // v; 0 if it is missing
	Versions map[string]JSON
}

// ReadGraphHead reads the head of a checkpoint. The checkpoint must be strict JSON.
func ReadGraphHead(checkpoint []byte) (h GraphHead, err error) {
	if !bytes.HasPrefix(bytes.TrimLeft(checkpoint, " \t\r\n"), []byte("{")) {
		return h, Errorf(CodeInvalid, "checkpoint is missing or is not a JSON object")
	}
	var members map[string]JSON // a map finds members by their exact names; struct tags would not
	if err := json.Unmarshal(checkpoint, &members); err != nil {
		return h, Errorf(CodeInvalid, "the checkpoint is wrong: %v", err)
	}
	if members["channel_values"] != nil {
		return h, Errorf(CodeInvalid, "the checkpoint has channel_values: send them beside it, as values")
	}
	for name, to := range map[string]any{"id": &h.ID, "v": &h.Format, "channel_versions": &h.Versions} {
		if members[name] == nil {
			continue
		}
		if err := json.Unmarshal(members[name], to); err != nil {
			return h, Errorf(CodeInvalid, "the checkpoint's %s is wrong: %v", name, err)
		}
	}
	return h, checkGraphName("id of the checkpoint", h.ID)
}

// GraphSaved is the answer to a put.
type GraphSaved struct {
	Missing    []string `json:"missing"`    // channels that the parent does not have; if there are any, nothing was written
	Checkpoint Ref      `json:"checkpoint"` // the daemon's id of the checkpoint
	Run        string   `json:"run"`
	Seq        int64    `json:"seq"`
	Replaced   bool     `json:"replaced"` // it replaced another checkpoint with the same LangGraph id

	Tags map[string]string `json:"tags"` // by channel, the tags of the values that were sent

	Drift *DriftVerdict `json:"drift,omitempty"` // the current verdict; absent if nothing was written
}

// GraphPutWrites asks to store writes of a task.
type GraphPutWrites struct {
	Agent string
	GraphThread
	Checkpoint string
	Writes     []GraphWrite
}

// Check refuses an invalid request.
func (p *GraphPutWrites) Check() error {
	if err := p.GraphThread.Check(); err != nil {
		return err
	}
	if err := checkGraphName("checkpoint", p.Checkpoint); err != nil {
		return err
	}
	if len(p.Writes) > maxGraphWrites {
		return Errorf(CodeInvalid, "there are %d writes: at most %d are allowed", len(p.Writes), maxGraphWrites)
	}
	for i := range p.Writes {
		if err := p.Writes[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (w *GraphWrite) check() error {
	if err := checkGraphName("task", w.Task); err != nil {
		return err
	}
	if err := checkGraphName("channel", w.Channel); err != nil {
		return err
	}
	if err := checkGraphText("path", w.Path); err != nil {
		return err
	}
	return checkGraphText("type", w.Type)
}

// Special reports whether all writes are to LangGraph's special channels. Such writes replace the
// stored ones.
func (p *GraphPutWrites) Special() bool {
	for i := range p.Writes {
		if p.Writes[i].Idx >= 0 {
			return false
		}
	}
	return true
}

// GraphWritten is the answer to writes.
type GraphWritten struct {
	Written int64  `json:"written"`
	Run     string `json:"-"`
}

// GraphQuery asks for checkpoints, newest first. A nil field does not restrict the result.
type GraphQuery struct {
	Agent      string
	Thread     *string
	NS         *string
	Checkpoint string          // its id; "" for any
	Before     string          // an id; "" for none
	Filter     map[string]JSON // members of the metadata
	Limit      int             // 0 for the size of a page
	Cursor     string
}

// Check refuses an invalid query.
func (q *GraphQuery) Check() error {
	for name, text := range map[string]*string{"thread": q.Thread, "ns": q.NS, "checkpoint": &q.Checkpoint, "before": &q.Before} {
		if text == nil {
			continue
		}
		if err := checkGraphText(name, *text); err != nil {
			return err
		}
	}
	if q.Limit < 0 {
		return Errorf(CodeInvalid, "limit is %d: it must be at least 1", q.Limit)
	}
	return nil
}

// GraphGet asks for one checkpoint.
type GraphGet struct {
	Agent string
	GraphThread
	Checkpoint string            // its id; "" for the newest
	Have       map[string]string // by channel, the tag of a value that the caller has: it is not sent again
}

// Check refuses an invalid request.
func (g *GraphGet) Check() error {
	if err := g.GraphThread.Check(); err != nil {
		return err
	}
	if len(g.Have) > maxGraphChannels {
		return Errorf(CodeInvalid, "have names %d channels: at most %d are allowed", len(g.Have), maxGraphChannels)
	}
	for channel := range g.Have {
		if err := checkGraphName("channel", channel); err != nil {
			return err
		}
	}
	return checkGraphText("checkpoint", g.Checkpoint)
}

// GraphTuple is a checkpoint with everything that belongs to it.
type GraphTuple struct {
	GraphThread
	ID         string
	Parent     Ref
	Checkpoint JSON
	Metadata   JSON
	Values     []GraphValue
	Writes     []GraphWrite
	Sends      []GraphBytes // only for checkpoints of old versions: what the tasks of the parent have sent
}

// GraphPage is a page of a list.
type GraphPage struct {
	Tuples []GraphTuple
	Next   Ref
}

// GraphHistoryQuery asks for the writes that make up delta channels. The checkpoint "" is the
// newest one.
type GraphHistoryQuery struct {
	Agent string
	GraphThread
	Checkpoint string
	Channels   []string
}

// Check refuses an invalid query.
func (q *GraphHistoryQuery) Check() error {
	if err := q.GraphThread.Check(); err != nil {
		return err
	}
	if len(q.Channels) > maxGraphChannels {
		return Errorf(CodeInvalid, "there are %d channels: at most %d are allowed", len(q.Channels), maxGraphChannels)
	}
	for _, channel := range q.Channels {
		if err := checkGraphName("channel", channel); err != nil {
			return err
		}
	}
	return checkGraphText("checkpoint", q.Checkpoint)
}

// GraphHistory is the content of a delta channel: writes, oldest first, on top of a seed. The seed
// is nil if there is none.
type GraphHistory struct {
	Channel string
	Seed    *GraphBytes
	Writes  []GraphWrite
}

// GraphStrategy says what a prune keeps.
type GraphStrategy string

// The strategies.
const (
	GraphKeepLatest GraphStrategy = "keep_latest"
	GraphDelete     GraphStrategy = "delete"
)

// GraphPrune asks to shorten threads.
type GraphPrune struct {
	Agent    string        `json:"-"`
	Threads  []string      `json:"threads"`
	Strategy GraphStrategy `json:"strategy"`
}

// Check refuses an invalid request.
func (p *GraphPrune) Check() error {
	if p.Strategy != GraphKeepLatest && p.Strategy != GraphDelete {
		return Errorf(CodeInvalid, "strategy is %q: it must be keep_latest or delete", cut(string(p.Strategy)))
	}
	for _, thread := range p.Threads {
		if err := checkGraphName("thread", thread); err != nil {
			return err
		}
	}
	return nil
}

// GraphCopy asks to copy a thread.
type GraphCopy struct {
	Agent string `json:"-"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// Check refuses an invalid request.
func (c *GraphCopy) Check() error {
	if err := checkGraphName("thread from which to copy", c.From); err != nil {
		return err
	}
	return checkGraphName("thread to which to copy", c.To)
}

// GraphRemoved is the number of removed checkpoints.
type GraphRemoved struct {
	Removed int64 `json:"removed"`
}

// GraphCopied is the number of copied checkpoints.
type GraphCopied struct {
	Copied int64 `json:"copied"`
}

// GraphPolicy returns the policy of an agent whose first save comes from a checkpointer: the whole
// history stays, and going back does not count as drift.
func GraphPolicy() Policy {
	p := DefaultPolicy()
	p.RoutineKeep = 0
	p.Sensitivity = SensitivityOff
	p.CheckpointInterval, p.RefreshAfter = 0, 0
	return p
}

// checkGraphName accepts any nonempty text that checkGraphText accepts.
func checkGraphName(what, s string) error {
	if s == "" {
		return Errorf(CodeInvalid, "the %s is missing or empty", what)
	}
	return checkGraphText(what, s)
}

// checkGraphText accepts any text that SQLite's command line can show completely.
func checkGraphText(what, s string) error {
	switch {
	case len(s) > MaxGraphName:
		return Errorf(CodeInvalid, "the %s is %d bytes long: at most %d are allowed", what, len(s), MaxGraphName)
	case !utf8.ValidString(s):
		return Errorf(CodeInvalid, "the %s is not valid UTF-8", what)
	case strings.IndexByte(s, 0) >= 0:
		return Errorf(CodeInvalid, "the %s has the character U+0000", what)
	}
	return nil
}

// CheckGraphThread accepts the name of a thread.
func CheckGraphThread(thread string) error { return checkGraphName("thread", thread) }
