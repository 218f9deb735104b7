package foreign

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"hash"
	"io"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Export writes a plan as lines of JSON. The daemon imports it as a whole or
// not at all, with the times of the files. docs/EXPORT.md describes the format. now is
// used for everything to which the files give no time, and for the end of a run, so
// that the agent's ended_keep counts from the import.
func (p *Plan) Export(w io.Writer, owner string, now time.Time) error {
	x := &exporter{to: w, sum: sha256.New(), run: p.Run}
	x.line("ckptsidecar_export", ordered{{"version", 1}})
	x.line("agent", ordered{{"agent", p.Agent}, {"owner", owner}, {"created_at", ckpt.At(now)}, {"policy_at",
		ckpt.At(now)}, {"policy", json.RawMessage("{}")}})
	parent := ckpt.Ref("")
	for i := range p.Saves {
		x.checkpoint(&p.Saves[i], i+1, parent, orNow(p.Times[i], now))
		parent = ckpt.Ref(p.Saves[i].ID)
	}
	x.runLine(p, now)
	for i := range p.Steps {
		x.step(p, i, now)
	}
	for i, e := range p.Events {
		payload := e.Payload
		if len(payload) == 0 {
			payload = ckpt.JSON("{}")
		}
		x.row("event", ordered{{"seq", i + 1}, {"at", orNow(p.EventTimes[i], p.updated(now))}, {"type", e.Type}, jsonMember("payload", payload)})
	}
	return x.end()
}

// ordered is a JSON object whose members keep their order. Members without a value are
// left out.
type ordered []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o ordered) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for _, m := range o {
		text, raw := m.value.(json.RawMessage)
		if !raw {
			var err error
			if text, err = json.Marshal(m.value); err != nil {
				return nil, err
			}
		}
		if len(text) == 0 || !raw && string(text) == "null" {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), text...)
	}
	return append(b, '}'), nil
}

// jsonMember returns a JSON value byte for byte, or as a text if it has a line break.
func jsonMember(name string, value ckpt.JSON) member {
	if len(value) == 0 {
		return member{name, nil}
	}
	if oneLine(value) {
		return member{name, json.RawMessage(value)}
	}
	return member{name + "_text", string(value)}
}

func oneLine(text []byte) bool {
	return len(text) > 0 && !bytes.ContainsAny(text, "\r\n") && len(bytes.TrimSpace(text)) == len(text)
}

func orNow(at, now time.Time) ckpt.Time {
	if at.IsZero() {
		return ckpt.At(now)
	}
	return ckpt.At(at)
}

// updated returns when the run last changed, as far as the files say.
func (p *Plan) updated(now time.Time) time.Time {
	for i := len(p.Times) - 1; i >= 0; i-- {
		if !p.Times[i].IsZero() {
			return p.Times[i]
		}
	}
	return now
}

// started returns when the run began, as far as the files say.
func (p *Plan) started(now time.Time) time.Time {
	if !p.Started.IsZero() {
		return p.Started
	}
	for _, at := range p.Times {
		if !at.IsZero() {
			return at
		}
	}
	return now
}

// exporter writes lines and hashes them.
type exporter struct {
	to    io.Writer
	sum   hash.Hash
	run   string
	lines int
	err   error
}

func (x *exporter) line(kind string, o ordered) {
	text, err := append(ordered{{"type", kind}}, o...).MarshalJSON()
	if err != nil {
		x.fail(err)
		return
	}
	x.lines++
	text = append(text, '\n')
	x.sum.Write(text)
	if x.err == nil {
		_, x.err = x.to.Write(text)
	}
}

func (x *exporter) fail(err error) {
	if x.err == nil {
		x.err = err
	}
}

// row writes a row of the run.
func (x *exporter) row(kind string, row ordered, more ...member) {
	text, err := row.MarshalJSON()
	if err != nil {
		x.fail(err)
		return
	}
	x.line(kind, append(ordered{{"run", x.run}, {"row", json.RawMessage(text)}}, more...))
}

func (x *exporter) checkpoint(s *ckpt.SaveRequest, seq int, parent ckpt.Ref, at ckpt.Time) {
	sum := sha256.Sum256(s.State)
	row := ordered{
		{"id", s.ID}, {"seq", seq}, {"kind", s.Kind}, {"parent", parent}, {"created_at", at}, {"size", len(s.State)},
		{"sha256", hex.EncodeToString(sum[:])},
		{"content_type", s.ContentType}, {"labels", s.Labels}, jsonMember("metadata", ckpt.JSON(s.Metadata)),
		{"program", s.Program}, {"step", s.Step},
	}
	state := member{"state_base64", base64.StdEncoding.EncodeToString(s.State)}
	if ckpt.IsJSON(s.ContentType) && oneLine(s.State) {
		state = member{"state", json.RawMessage(s.State)}
	}
	x.row("checkpoint", row, state)
}

func (x *exporter) runLine(p *Plan, now time.Time) {
	updated := ckpt.At(p.updated(now))
	var ended, interrupted ckpt.Time
	var head any
	if !p.End.Status.Resumable() {
		ended = ckpt.At(now)
	} else if p.Dead {
		interrupted = updated
	}
	if n := len(p.Saves); n > 0 {
		head = p.Saves[n-1].ID
	}
	done := 0
	for i := range p.Steps {
		if s := p.Steps[i].Status; s == ckpt.StepSucceeded || s == ckpt.StepFailed {
			done++
		}
	}
	accumulated := int64(0)
	if p.Start.AccumulatedMS != nil {
		accumulated = *p.Start.AccumulatedMS
	}
	x.row("run", ordered{
		{"status", p.End.Status}, {"epoch", 1}, {"attempt", 1}, {"started_at", ckpt.At(p.started(now))}, {"updated_at", updated}, {"ended_at", ended},
		{"last_seq", len(p.Saves)}, {"life", 1}, {"head", head}, {"workflow", p.Start.Workflow},
		{"interrupted_at", interrupted}, {"accumulated_ms", accumulated},
		{"heartbeat_timeout_ms", 0}, {"progress_timeout_ms", 0}, {"goal", p.Start.Goal}, {"first_goal", p.Start.Goal},
		{"steps_ended", done}, {"input_tokens", 0},
		{"output_tokens", 0}, {"cost_usd", 0}, {"stretch", 1}, {"stretch_seq", 0}, {"stretch_from", 0},
		{"continuation_prompt", p.End.ContinuationPrompt},
		{"external_session", p.Start.ExternalSession}, {"labels", p.Start.Labels}, jsonMember("result", p.End.Result),
		{"error", p.End.Error}, {"last_event", len(p.Events)},
	}, member{"unscreened", true})
}

// step writes a step. The newest state knows the steps that had ended, so these are
// marked as older than it. A resume plan then does not list them as done after it.
func (x *exporter) step(p *Plan, i int, now time.Time) {
	s, span := &p.Steps[i], p.StepTimes[i]
	after, ended := max(len(p.Saves)-1, 0), orNow(span.End, p.updated(now))
	status := s.Status
	if status == ckpt.StepStarted {
		status, after = ckpt.StepInterrupted, len(p.Saves)
	}
	began := ended
	if !span.Begin.IsZero() {
		began = ckpt.At(span.Begin)
	}
	x.row("step", ordered{
		{"key", s.Key}, {"attempt", 1}, {"name", s.Name}, {"status", status}, jsonMember("args", s.Args),
		jsonMember("result", s.Result), {"error", s.Error},
		{"started_at", began}, {"ended_at", ended}, {"duration_ms", s.DurationMS}, {"after_seq", after}, {"stretch",
			0}, {"failures", 0}, {"unparsable", false}, {"calls", 0},
	})
}

func (x *exporter) end() error {
	x.line("end", ordered{{"lines", x.lines}, {"sha256", hex.EncodeToString(x.sum.Sum(nil))}})
	return x.err
}
