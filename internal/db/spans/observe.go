package spans

import (
	"context"
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

const insertSpan = `INSERT INTO spans (owner, trace, span, call, said) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

// row is a span that is about to be stored.
type row struct {
	said
	text string
}

// Observe takes the spans of one request in one transaction. A span that is already stored is a
// duplicate, and changes nothing: an exporter that lost a reply sends its spans again.
func (s *Spans) Observe(ctx context.Context, sc ckpt.Scope, batch []observed.Span, content observed.Content) (*observed.Counts, error) {
	stored, err := s.withSpans(ctx, sc.Caller.Owner, batch)
	if err != nil {
		return nil, err
	}
	o := &observed.Counts{}
	rows := make([]row, 0, len(batch))
	size := int64(0)
	add := func(span observed.Span) (observed.Span, error) {
		kept := s.read(ctx, span, content)
		text, err := json.Marshal(&kept)
		rows = append(rows, row{kept, string(text)})
		size += int64(len(text))
		return kept.Span, err
	}
	for i := range batch {
		if batch[i].Kind == observed.Structure {
			o.Ignored++
			if batch[i].Parent != "" || !stored[batch[i].Trace] {
				s.screenNames(&batch[i])
				continue
			}
		}
		if batch[i], err = add(batch[i]); err != nil {
			return nil, err
		}
	}
	for _, root := range s.traces.earlyRoots(sc.Caller.Owner, stored) {
		if _, err := add(root); err != nil {
			return nil, err
		}
	}
	kept := map[string]int{}
	if len(rows) > 0 {
		e := ledger.Entry(sc, "observe_spans", "")
		err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Size: size, Entry: e, Do: func(tx *ledger.Tx) error {
			clear(kept)
			tx.Touches()
			o.Steps, o.Usage, o.Duplicates = 0, 0, 0
			return s.insert(tx, sc.Caller.Owner, rows, o, kept, e)
		}})
		if err != nil {
			return nil, err
		}
	}
	s.traces.hear(sc.Caller.Owner, batch, kept, s.Opt.Now())
	return o, nil
}

// withSpans returns the traces of a batch that have spans which are stored. The root of such a trace
// is stored too, whatever it is, because it ends its run.
func (s *Spans) withSpans(ctx context.Context, owner string, batch []observed.Span) (map[string]bool, error) {
	stored := map[string]bool{}
	for i := range batch {
		if batch[i].Kind != observed.Structure {
			stored[batch[i].Trace] = true
		}
	}
	var alone []string
	for i := range batch {
		if batch[i].Parent == "" && !stored[batch[i].Trace] {
			alone = append(alone, batch[i].Trace)
		}
	}
	if len(alone) == 0 {
		return stored, nil
	}
	list, err := json.Marshal(alone)
	if err != nil {
		return nil, err
	}
	var earlier []string
	err = s.RO.SelectContext(ctx, &earlier, `SELECT e.value FROM json_each(?2) e
		WHERE EXISTS (SELECT 1 FROM spans WHERE owner = ?1 AND trace = e.value)`, owner, string(list))
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	for _, id := range earlier {
		stored[id] = true
	}
	return stored, nil
}

func (s *Spans) insert(tx *ledger.Tx, owner string, rows []row, o *observed.Counts, kept map[string]int, e ledger.AuditEntry) error {
	for i := range rows {
		r := &rows[i]
		n, err := tx.InsertNew(insertSpan, owner, r.Trace, r.ID, ckpt.Ref(r.Call), r.text)
		switch {
		case err != nil:
			return err
		case n == 0:
			if r.Kind != observed.Structure && !r.Told {
				o.Duplicates++
			}
			continue
		case r.Kind == observed.Structure, r.Told: // the one is counted as ignored, the other is no span
		case r.Kind == observed.Tool:
			o.Steps++
		default:
			o.Usage++
		}
		kept[r.Trace]++
	}
	if len(kept) == 0 {
		return nil
	}
	e.Detail = map[string]any{"tools": o.Steps, "usage": o.Usage, "duplicates": o.Duplicates}
	return tx.Audit(e)
}
