package driftlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// Share notes the shared values of a state that is being saved, after it is on disk.
func (s *Drifts) Share(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, hashes map[string]string, row *ledger.CheckpointRow) {
	if len(hashes) == 0 {
		return
	}
	values := make(map[string]sharedValue, len(hashes))
	for pointer, hash := range hashes {
		values[pointer] = sharedValue{hash, row.ID, run.ID, row.CreatedAt.Time}
	}
	tx.OnCommit(func() { s.Shared.put(ledger.AgentKey{Owner: agent.Owner, Name: agent.Name}, values) })
}

// keepOnly drops agents that no longer share anything.
func (m *shared) keepOnly(agents []sharer) {
	sharing := make(map[ledger.AgentKey]bool, len(agents))
	for i := range agents {
		sharing[ledger.AgentKey{Owner: agents[i].Owner, Name: agents[i].Name}] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.values, func(key ledger.AgentKey, _ map[string]sharedValue) bool { return !sharing[key] })
}

// SharedValues returns the hashes of the values at some places of a checked state. m is its map,
// nil if there is none.
func SharedValues(state []byte, m *jsontext.Map, pointers []string) map[string]string {
	if len(pointers) == 0 || m == nil && levels(pointers) > maxSharedScan/(len(state)+1) {
		return nil
	}
	hashes := make(map[string]string, len(pointers))
	for _, pointer := range pointers {
		hashes[pointer] = ""
		if text := textAt(state, m, pointer); text != nil {
			hashes[pointer] = hashOfValue(text)
		}
	}
	return hashes
}

// maxSharedScan bounds the bytes that are read to find values in a state without a map: at each
// level of a pointer, the rest of the state may be read again. A state that would need more is not
// compared.
const maxSharedScan = 1 << 30

// levels is the total number of names and indexes in the pointers.
func levels(pointers []string) (n int) {
	for _, pointer := range pointers {
		n += strings.Count(pointer, "/")
	}
	return n
}

// textAt follows a checked JSON pointer. It returns nil if the pointer leads nowhere.
func textAt(state []byte, m *jsontext.Map, pointer string) []byte {
	begin, end := 0, len(state)
	for part := range strings.SplitSeq(pointer[1:], "/") {
		name := jsontext.UnescapePointer(part)
		found := false
		isObject := jsontext.MembersAt(state, begin, m, func(member string, from, to int) bool {
			if found = member == name; found {
				begin, end = from, to
			}
			return !found
		})
		if !isObject {
			element := elementOf(state[begin:end], name)
			if element == nil {
				return nil
			}
			state, m, begin, end, found = element, nil, 0, len(element), true
		}
		if !found {
			return nil
		}
	}
	return state[begin:end]
}

// elementOf finds an element of an array by its index.
func elementOf(text []byte, name string) []byte {
	var list []json.RawMessage
	i, err := strconv.Atoi(name)
	if err != nil || json.Unmarshal(text, &list) != nil || i < 0 || i >= len(list) {
		return nil
	}
	return list[i]
}

// hashOfValue is the same for equal values, however they are written.
func hashOfValue(text []byte) string {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return ""
	}
	text, err := json.Marshal(plainNumbers(v))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// plainNumbers writes equal numbers in the same way.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		switch {
		case err != nil:
			return v.String()
		case f == math.Trunc(f) && math.Abs(f) < 1<<53:
			return int64(f)
		}
		return f
	case map[string]any:
		for name := range v {
			v[name] = plainNumbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	}
	return v
}

// sharer is an agent whose policy has shared keys.
type sharer struct {
	ledger.AgentRow
	values map[string]sharedValue
}

// part is how the agent takes part in a disagreement at a place.
func (a *sharer) part(pointer string) part { return part{a.ID, a.values[pointer].runID} }

// sharedAtOnce is the most states that one tick reads for this.
const sharedAtOnce = 20

// compareShared compares all places on which agents must agree, and warns if they have differed for
// too long. A run whose rows are damaged is left out and reported.
func (s *Drifts) compareShared(ctx context.Context) error {
	var agents []sharer
	err := s.RO.SelectContext(ctx, &agents, `SELECT id, owner, name, policy FROM agents WHERE policy LIKE '%"shared_keys":["%' ORDER BY id`)
	if err != nil {
		return sqlite.ReadError(err)
	}
	s.Shared.keepOnly(agents)
	read := 0
	var failed error
	places := map[sharedKey][]*sharer{}
	for i := range agents {
		a := &agents[i]
		if _, err := a.Parsed(); err != nil || a.Settings.Sensitivity == ckpt.SensitivityOff {
			continue
		}
		if a.values, err = s.sharedOf(ctx, a, &read); err != nil {
			if failed = errors.Join(failed, err); ckpt.CodeOf(err) != ckpt.CodeInternal {
				return failed
			}
		}
		for _, pointer := range a.Settings.SharedKeys {
			if a.values[pointer].hash != "" && a.Settings.Detectors[ckpt.RuleSharedKeys].Tier != ckpt.TierOff {
				key := sharedKey{a.Owner, pointer}
				places[key] = append(places[key], a)
			}
		}
	}
	failed = errors.Join(failed, s.judgeShared(ctx, places))
	if read >= sharedAtOnce { // the values of some agents are not known yet
		return failed
	}
	return errors.Join(failed, s.agreed(ctx, places))
}

// agreed closes the findings of disagreements that are over.
func (s *Drifts) agreed(ctx context.Context, places map[sharedKey][]*sharer) error {
	var open []struct {
		Run     int64  `db:"run_id"`
		Owner   string `db:"owner"`
		Pointer string `db:"pointer"`
	}
	err := s.RO.SelectContext(ctx, &open, `SELECT DISTINCT f.run_id, a.owner, coalesce(f.evidence ->> 'pointer', '') AS pointer
		FROM findings f INDEXED BY findings_shared CROSS JOIN runs r ON r.id = f.run_id CROSS JOIN agents a ON a.id = r.agent_id
		WHERE f.closed IS NULL AND f.rule = 'shared_keys' AND NOT f.posted`)
	if err != nil {
		return sqlite.ReadError(err)
	}
	for _, o := range open {
		key := sharedKey{o.Owner, o.Pointer}
		if len(places[key]) > 0 && s.Shared.differs(key, o.Run) {
			continue
		}
		err := s.Submit(&ledger.Op{Owner: ledger.Daemon, Do: func(tx *ledger.Tx) error {
			run, agent, err := s.RunWithAgent(tx, o.Run)
			if err != nil || run == nil {
				return err
			}
			w, err := s.WatchRun(tx, agent, run, nil)
			if err != nil {
				return err
			}
			return s.closeOver(tx, agent, run, w.take(func(f *ckpt.Finding) bool { return aboutPointer(f, o.Pointer) }), run.LastSeq)
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// differs says whether a run takes part in a disagreement.
func (m *shared) differs(key sharedKey, run int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.differ[key]
	if d == nil {
		return false
	}
	for p := range d.since {
		if p.run == run {
			return true
		}
	}
	return false
}

// sharedOf returns the values that an agent shares, from memory or read once. What is damaged is not
// read again.
func (s *Drifts) sharedOf(ctx context.Context, a *sharer, read *int) (map[string]sharedValue, error) {
	key := ledger.AgentKey{Owner: a.Owner, Name: a.Name}
	values, known := s.Shared.get(key)
	missing := slices.ContainsFunc(a.Settings.SharedKeys, func(pointer string) bool { _, there := values[pointer]; return !there })
	if known && !missing || *read >= sharedAtOnce {
		return values, nil
	}
	*read++
	values = make(map[string]sharedValue, len(a.Settings.SharedKeys))
	for _, pointer := range a.Settings.SharedKeys {
		values[pointer] = sharedValue{}
	}
	err := s.Reading(ctx, func(q *sqlx.Tx) error {
		var run int64
		err := q.GetContext(ctx, &run,
			`SELECT id FROM runs WHERE agent_id = ? AND ended_at IS NULL AND last_seq > removed ORDER BY updated_at DESC LIMIT 1`, a.ID)
		if ledger.IsNoRows(err) {
			return nil
		}
		if err != nil {
			return err
		}
		var row struct {
			blob.StateRow
			At          ledger.Lenient[ckpt.Time] `db:"created_at"`
			ContentType string                    `db:"content_type"`
			Old         bool                      `db:"old"` // the run went back to it
		}
		err = q.GetContext(ctx, &row, `SELECT c.n, c.id, c.size, c.sha256, c.body, c.pieces, c.created_at, c.content_type, c.seq <= r.stretch_seq AS old
			FROM runs r JOIN checkpoints c ON c.run_id = r.id AND c.kind IN ('routine', 'pre_operation', 'recovery')
			AND c.seq = coalesce((SELECT max(seq) FROM (`+newestOfRun+`) WHERE seq > r.stretch_seq), r.stretch_from) WHERE r.id = ?1`, run, 1)
		if ledger.IsNoRows(err) || err == nil && !ckpt.IsJSON(row.ContentType) {
			return nil
		}
		if err != nil {
			return err
		}
		at := row.At.Value.Time
		if row.Old {
			at = s.Opt.Now()
		}
		state, err := blob.Decode(ctx, q, &row.StateRow)
		for pointer, hash := range SharedValues(state, nil, a.Settings.SharedKeys) {
			values[pointer] = sharedValue{hash, row.ID, run, at}
		}
		return err
	})
	switch ckpt.CodeOf(err) {
	case "", ckpt.CodeCorrupt:
		return s.Shared.fill(key, values), nil
	case ckpt.CodeInternal:
		return s.Shared.fill(key, values), err
	}
	return nil, err
}

// judgeShared warns of each place whose values have differed for longer than the grace period of
// the agents' policies.
func (s *Drifts) judgeShared(ctx context.Context, places map[sharedKey][]*sharer) (failed error) {
	now := s.Opt.Now()
	s.Shared.mu.Lock()
	for key := range s.Shared.differ {
		if places[key] == nil {
			delete(s.Shared.differ, key)
		}
	}
	s.Shared.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(places), func(a, b sharedKey) int {
		return strings.Compare(a.owner+a.pointer, b.owner+b.pointer)
	}) {
		agents, err := s.stillRunning(ctx, key, places[key])
		if err != nil {
			return errors.Join(failed, err)
		}
		late := s.Shared.judge(key, agents, now)
		for _, a := range agents {
			p := a.part(key.pointer)
			since, is := late[p]
			if !is {
				continue
			}
			if err := s.warnShared(key, a, agents, since); err != nil {
				failed = errors.Join(failed, err)
				if !ledger.IsDamage(err) {
					return failed
				}
			}
			s.Shared.tell(key, p)
		}
	}
	return failed
}

// stillRunning leaves out agents whose run has ended: they can no longer change what the run left.
func (s *Drifts) stillRunning(ctx context.Context, key sharedKey, agents []*sharer) ([]*sharer, error) {
	if len(agents) < 2 {
		return nil, nil
	}
	var left []*sharer
	for _, a := range agents {
		var running bool
		err := s.RO.GetContext(ctx, &running, `SELECT ended_at IS NULL FROM runs WHERE id = ? AND agent_id = ?`, a.values[key.pointer].runID, a.ID)
		if err != nil && !ledger.IsNoRows(err) {
			return nil, sqlite.ReadError(err)
		}
		if running {
			left = append(left, a)
		}
	}
	return left, nil
}

// judge notes since when the values at a place have differed, and returns the runs that have differed
// for too long and were not warned yet, each with the time since when.
func (m *shared) judge(key sharedKey, agents []*sharer, now time.Time) (late map[part]time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	settle, same, newest := time.Duration(0), true, time.Time{}
	parts := map[part]time.Time{} // when their values were saved
	for _, a := range agents {
		v := a.values[key.pointer]
		same = same && v.hash == agents[0].values[key.pointer].hash
		settle = max(settle, time.Duration(a.Settings.Settle))
		if parts[a.part(key.pointer)] = v.at; v.at.After(newest) {
			newest = v.at
		}
	}
	if same {
		delete(m.differ, key)
		return nil
	}
	d := m.differ[key]
	if d == nil {
		if m.differ == nil {
			m.differ = map[sharedKey]*disagreement{}
		}
		d = &disagreement{newest, map[part]time.Time{}, map[part]bool{}}
		m.differ[key] = d
		for p := range parts {
			d.since[p] = newest
		}
	}
	d.forget(parts)
	late = map[part]time.Time{}
	for p, at := range parts {
		if _, known := d.since[p]; !known {
			if d.since[p] = at; at.Before(d.began) {
				d.since[p] = d.began
			}
		}
		if !d.told[p] && now.Sub(d.since[p]) >= settle {
			late[p] = d.since[p]
		}
	}
	return late
}

func (m *shared) tell(key sharedKey, warned part) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.differ[key]; d != nil {
		d.told[warned] = true
	}
}

// warnShared makes a finding for the run of an agent that has taken part in a disagreement for too
// long.
func (s *Drifts) warnShared(key sharedKey, a *sharer, agents []*sharer, since time.Time) error {
	return s.Submit(&ledger.Op{Owner: ledger.Daemon, Do: func(tx *ledger.Tx) error {
		run, agent, err := s.RunWithAgent(tx, a.values[key.pointer].runID)
		if err != nil || run == nil {
			return err
		}
		w, err := s.WatchRun(tx, agent, run, nil)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(w.open, func(f ckpt.Finding) bool { return aboutPointer(&f, key.pointer) }) {
			return nil
		}
		saw := Seen{found: []observer.Found{disagreementOf(key, a, agents, since)}}
		_, err = s.find(tx, agent, run, w, saw, a.values[key.pointer].checkpoint)
		return err
	}})
}

func aboutPointer(f *ckpt.Finding, pointer string) bool {
	var evidence ckpt.Evidence
	return f.Rule == ckpt.RuleSharedKeys && json.Unmarshal(f.Evidence, &evidence) == nil && evidence.Pointer == pointer
}

func disagreementOf(key sharedKey, a *sharer, agents []*sharer, since time.Time) observer.Found {
	evidence := ckpt.Evidence{Pointer: key.pointer, Threshold: a.Settings.Settle.String(), Observed: "since " + ckpt.At(since).String()}
	for _, other := range agents {
		v := other.values[key.pointer]
		if v.hash != a.values[key.pointer].hash {
			evidence.Others = append(evidence.Others, other.Name)
		}
		if len(evidence.Checkpoints) < ckpt.MaxEvidence {
			evidence.Checkpoints = append(evidence.Checkpoints, v.checkpoint)
		}
	}
	more := ""
	if n := len(evidence.Others); n > ckpt.MaxEvidence {
		evidence.Others, more = evidence.Others[:ckpt.MaxEvidence], fmt.Sprintf(" and %d more", n-ckpt.MaxEvidence)
	}
	others := strings.Join(evidence.Others, ", ") + more
	return observer.Found{
		Rule: ckpt.RuleSharedKeys, Severity: ckpt.SeverityWarn, About: ckpt.AboutWork, Evidence: evidence,
		Message: fmt.Sprintf("The state of %s has had another value at %s than %s since %s; the policy lets them differ for %s.",
			a.Name, key.pointer, others, ckpt.At(since), a.Settings.Settle),
		Advice: fmt.Sprintf("Read %s anew from its source: you and %s do not agree on it.", key.pointer, others),
	}
}
