package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// checkExport reads and checks a whole export without importing it.
func checkExport(f *os.File) (*contents, error) {
	l, err := readLines(f)
	if err != nil {
		return nil, err
	}
	c := &checking{contents: &contents{has: map[string]bool{}}, kinds: map[string]*kindCount{}, names: map[string]bool{}}
	sum := sha256.New()
	for {
		b, line, err := l.next()
		switch {
		case err == io.EOF:
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the export ends after line %d without its last line: "+
				"it was cut off; nothing was changed", l.number)
		case err != nil:
			return nil, err
		case !c.begun:
			err = c.begin(line)
		case line.Type == lineEnd:
			return c.contents, c.end(l, line, sum)
		default:
			if err = c.line(line); err != nil {
				err = ckpt.Errorf(ckpt.CodeInvalid, "line %d of the export is wrong: %v; nothing was imported", l.number, plain(err))
			}
		}
		if err != nil {
			return nil, err
		}
		sum.Write(b)
		c.count(line.Type, b)
	}
}

// plain returns an error without its code.
func plain(err error) error {
	var e *ckpt.Error
	if errors.As(err, &e) {
		return errors.New(e.Message)
	}
	return err
}

func (c *checking) count(kind string, line []byte) {
	k := c.kinds[kind]
	if k == nil {
		k = &kindCount{sum: sha256.New()}
		c.kinds[kind] = k
	}
	k.lines++
	k.sum.Write(line)
}

func (c *checking) begin(line *exportLine) error {
	switch {
	case line.Type != lineBegin:
		return ckpt.Errorf(ckpt.CodeInvalid, "this is not an export of ckptsidecar: its first line has no type %q", lineBegin)
	case line.Version != exportVersion:
		return ckpt.Errorf(ckpt.CodeInvalid,
			"the export has version %d, and this program reads version %d: use the ckptsidecar that made it", line.Version, exportVersion)
	}
	c.begun = true
	return nil
}

func (c *checking) beginAgent(line *exportLine) error {
	if _, err := wellformed.ParsePolicy(line.Policy); err != nil {
		return err
	}
	if err := ckpt.CheckAgentName(line.Agent); err != nil {
		return err
	}
	if line.Owner != "" && !ckpt.IsOwner(line.Owner) { // the row of each checkpoint in the audit log names it
		return ckpt.Errorf(ckpt.CodeInvalid, "the owner of agent %s is neither uid:NUMBER nor a SID", line.Agent)
	}
	if c.names[line.Agent] {
		return fmt.Errorf("agent %s comes twice", line.Agent)
	}
	c.names[line.Agent] = true
	c.agent = &agentSeen{name: line.Agent, target: line.Agent, owner: line.Owner, policy: line.Policy,
		runs: map[string]*runSeen{}, marks: map[string]markSeen{},
		threads: map[ckpt.GraphThread]bool{}}
	c.open = nil
	c.agents = append(c.agents, c.agent)
	return nil
}

// line checks a line between the first and the last.
func (c *checking) line(line *exportLine) error {
	if line.Type == lineAgent {
		return c.checkAgent(line)
	}
	if c.agent == nil {
		return errors.New("it comes before the first agent")
	}
	if is, err := c.checkFiles(line); is {
		return err
	}
	if err := checkLifeKey(line.Run); err != nil {
		return err
	}
	switch line.Type {
	case lineCheckpoint:
		return c.checkCheckpoint(line)
	case lineMark:
		return c.checkMark(line)
	case lineDamaged:
		r := c.agent.run(line.Run)
		r.damaged = cut(line.Kind) + " " + cut(line.Reason)
		return nil
	case lineRun:
		return c.checkRun(line)
	}
	t := tableOf(line.Type)
	switch {
	case t == nil:
		return fmt.Errorf("it has the unknown type %q", cut(line.Type))
	case c.open == nil || c.open.name != line.Run:
		return fmt.Errorf("it belongs to run %s, whose line must come first", line.Run)
	}
	return c.checkRow(t, line)
}

func (c *checking) checkAgent(line *exportLine) error {
	if err := c.endAgent(); err != nil {
		return err
	}
	if line.CreatedAt == nil || line.CreatedAt.IsZero() || line.PolicyAt == nil || line.PolicyAt.IsZero() {
		return errors.New("created_at or policy_at is missing")
	}
	if err := c.beginAgent(line); err != nil {
		return err
	}
	c.agent.createdAt, c.agent.policyAt = *line.CreatedAt, *line.PolicyAt
	return nil
}

// endAgent checks an agent after all of its lines have been read.
func (c *checking) endAgent() error {
	if c.agent == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.agent.runs)) {
		r := c.agent.runs[name]
		switch {
		case !r.declared:
			return fmt.Errorf("run %s of agent %s has no line of its own", name, c.agent.name)
		case r.seq > r.lastSeq:
			return fmt.Errorf("run %s has a checkpoint %d, and its last_seq is %d", name, r.seq, r.lastSeq)
		case r.event != r.lastEvent && r.event != 0:
			return fmt.Errorf("run %s has events up to %d, and its last_event is %d", name, r.event, r.lastEvent)
		}
	}
	return c.agent.nameLives()
}

func (c *checking) checkCheckpoint(line *exportLine) error {
	seen, err := readCheckpoint(line)
	if err == nil {
		err = wellformed.Save(seen.request)
	}
	if err == nil && seen.operation != "" {
		err = ckpt.CheckKey("operation", string(seen.operation))
	}
	if err != nil {
		return err
	}
	r := c.agent.run(line.Run)
	switch {
	case blob.HashOf(seen.request.State) != seen.sha256:
		return errors.New("the state does not match its sha256")
	case int64(len(seen.request.State)) != seen.size:
		return errors.New("the state does not match its size")
	case seen.seq <= r.seq:
		return fmt.Errorf("checkpoint %d of run %s comes after checkpoint %d", seen.seq, r.name, r.seq)
	case seen.stateOf.Valid && seen.stateOf.Int64 >= seen.seq:
		return errors.New("its state_of is not an earlier checkpoint")
	}
	r.seq = seen.seq
	if len(r.ids) == 2 {
		r.ids = r.ids[:1]
	}
	r.ids = append(r.ids, seen.request.ID)
	return c.once(seen.request.ID)
}

// once refuses an id that appeared before.
func (c *checking) once(id string) error {
	if c.has[id] {
		return fmt.Errorf("the id %s comes twice", id)
	}
	c.has[id] = true
	return nil
}

func (c *checking) checkMark(line *exportLine) error {
	row, err := marks.parseRow(line.Row)
	if err != nil {
		return err
	}
	m := markSeen{gone: marks.whole(row, "gone") == 1, pinned: marks.whole(row, "pinned") == 1, suspect: marks.whole(row, "suspect") == 1}
	if m.labels, err = readLabels(marks.text(row, "labels")); err != nil {
		return err
	}
	id := marks.text(row, "id")
	if !c.has[id] {
		return fmt.Errorf("checkpoint %s does not come before it", id)
	}
	c.agent.marks[id] = m
	return nil
}

func (c *checking) checkRun(line *exportLine) error {
	row, err := runs.parseRow(line.Row)
	if err != nil {
		return err
	}
	r := c.agent.run(line.Run)
	r.status = ckpt.RunStatus(runs.text(row, "status"))
	r.ended = runs.at(row, "ended_at") != nil
	r.lastSeq, r.lastEvent, r.epoch = runs.whole(row, "last_seq"), runs.whole(row, "last_event"), runs.whole(row, "epoch")
	r.attempt, r.life = runs.whole(row, "attempt"), runs.whole(row, "life")
	r.startedAt, r.alive = runs.text(row, "started_at"), line.OwnerAlive
	r.unscreened = line.Unscreened
	switch {
	case r.declared:
		return fmt.Errorf("run %s comes twice", r.name)
	case r.ended == r.status.Resumable():
		return fmt.Errorf("run %s is %s, which contradicts its ended_at", r.name, r.status)
	case r.lastSeq > ledger.MaxSeq:
		return fmt.Errorf("run %s has a last_seq above %d", r.name, int64(ledger.MaxSeq))
	case runs.whole(row, "stretch_seq") > r.lastSeq, runs.whole(row, "stretch_from") > r.lastSeq:
		return fmt.Errorf("run %s counts checkpoints beyond its last_seq", r.name)
	}
	r.declared = true
	c.open = r
	c.agent.order = append(c.agent.order, r)
	return nil
}

// checkRow checks a row of a run, and that it appears only once.
func (c *checking) checkRow(t *table, line *exportLine) error {
	row, err := t.parseRow(line.Row)
	if err != nil {
		return err
	}
	r := c.open
	key := ""
	switch t.kind {
	case lineStep:
		key = t.text(row, "key")
	case lineOperation:
		attempt := t.whole(row, "attempt")
		key = strconv.FormatInt(attempt, 10) + " " + t.text(row, "key")
		r.attempts[t.text(row, "key")] = max(r.attempts[t.text(row, "key")], attempt)
	case linePrompt:
		if asked := t.text(row, "key"); asked != "" {
			if r.keys[linePrompt+" "+asked] {
				return errors.New("the question of one key comes twice")
			}
			r.keys[linePrompt+" "+asked] = true
		}
		return c.once(t.text(row, "id"))
	case lineFinding:
		return c.once(t.text(row, "id"))
	case lineEvent:
		seq := t.whole(row, "seq")
		if r.event != 0 && seq != r.event+1 {
			return fmt.Errorf("event %d comes after event %d", seq, r.event)
		}
		r.event = seq
		return nil
	case lineThread:
		thread := ckpt.GraphThread{Thread: t.text(row, "thread"), NS: t.text(row, "ns")}
		if thread.RunName() != r.base {
			return fmt.Errorf("the thread %q does not belong to run %s", cut(thread.Thread), r.name)
		}
		if c.agent.threads[thread] {
			return fmt.Errorf("the thread %q comes twice", cut(thread.Thread))
		}
		c.agent.threads[thread] = true
	case lineWrite:
		if !r.keys[lineThread+" "] {
			return errors.New("its run has no thread")
		}
		key = fmt.Sprintf("%q %q %d", t.text(row, "checkpoint"), t.text(row, "task"), t.whole(row, "idx"))
	}
	key = t.kind + " " + key
	if r.keys[key] {
		return fmt.Errorf("the %s comes twice", key)
	}
	r.keys[key] = true
	return nil
}

func (c *checking) end(l *lines, line *exportLine, sum hash.Hash) error {
	if line.Lines != l.number-1 || c.changed(line, sum) {
		return ckpt.Errorf(ckpt.CodeInvalid, "the export was changed: its checksum does not match; nothing was imported")
	}
	if _, _, err := l.next(); err != io.EOF {
		return ckpt.Errorf(ckpt.CodeInvalid, "line %d comes after the end of the export; nothing was imported", l.number+1)
	}
	if len(c.agents) == 0 {
		return ckpt.Errorf(ckpt.CodeInvalid, "the export has no agent; nothing was imported")
	}
	if err := c.endAgent(); err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "the export is wrong: %v; nothing was imported", plain(err))
	}
	return nil
}

// changed says whether the hashes in the last line differ from those of the lines.
func (c *checking) changed(line *exportLine, sum hash.Hash) bool {
	return line.SHA256 != hex.EncodeToString(sum.Sum(nil)) || !c.sameKinds(line.Kinds)
}

func (c *checking) sameKinds(told map[string]kindSums) bool {
	if len(told) != len(c.kinds) {
		return false
	}
	for kind, k := range c.kinds {
		if told[kind] != (kindSums{k.lines, hex.EncodeToString(k.sum.Sum(nil))}) {
			return false
		}
	}
	return true
}
