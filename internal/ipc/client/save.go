package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Save puts a state on disk. It makes an id if the request has none. Give an id to repeat
// a save whose outcome is unknown. For a large state, it sends only the changes since the
// run's last one.
func (c *Client) Save(ctx context.Context, r *ckpt.SaveRequest) (*ckpt.Saved, error) {
	a, err := saveAsk(r)
	if err != nil {
		return nil, err
	}
	a.agent, a.run = r.Agent, runOrMain(r.Run)
	var saved *ckpt.Saved
	err = c.through(ctx, a, func(ctx context.Context) error {
		saved, err = c.saveNow(ctx, r, a)
		return err
	})
	return orNil(saved, err)
}

// saveNow sends the changes, or the whole state.
func (c *Client) saveNow(ctx context.Context, r *ckpt.SaveRequest, a *ask) (saved *ckpt.Saved, err error) {
	s := c.newSaver(r, a)
	if s == nil {
		return c.send(ctx, a)
	}
	change := s.change()
	if change != nil {
		saved, err = c.send(ctx, change)
	}
	if change == nil || ckpt.CodeOf(err) == ckpt.CodeBaseMissing {
		saved, err = c.send(ctx, a)
	}
	s.done(saved)
	return saved, err
}

func (c *Client) send(ctx context.Context, a *ask) (*ckpt.Saved, error) {
	ans, err := c.repeat(ctx, a)
	if err != nil {
		return nil, err
	}
	saved, err := readSaved(ans.body)
	if err != nil {
		return nil, err
	}
	saved.Replayed, saved.AsSent = ans.replayed(), ans.header.Get(ipc.HeaderAsSent) == "true"
	return saved, nil
}

func runOrMain(run string) string {
	if run == "" {
		return ckpt.MainRun
	}
	return run
}

func saveAsk(r *ckpt.SaveRequest) (*ask, error) {
	if err := ckpt.CheckAgentName(r.Agent); err != nil {
		return nil, err
	}
	if r.IdempotencyKey != "" {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the id of a save is its key: set ID, not IdempotencyKey")
	}
	id := r.ID
	if id == "" {
		made, err := newID()
		if err != nil {
			return nil, err
		}
		id = made
	} else if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	header, err := saveHeader(r)
	if err != nil {
		return nil, err
	}
	return &ask{
		method: http.MethodPut, path: agentPath(r.Agent) + "/checkpoints/" + id, query: saveQuery(r),
		header: header, body: r.State, contentType: r.ContentType, write: true, repeatable: true,
	}, nil
}

func saveQuery(r *ckpt.SaveRequest) values {
	q := make(values, 0, 8)
	q.add("kind", string(r.Kind))
	q.add("run", r.Run)
	if r.Epoch != nil {
		q.add("epoch", strconv.FormatInt(*r.Epoch, 10))
	}
	q.add("parent", string(r.Parent))
	q.add("fork_from", string(r.ForkFrom))
	q.add("step", string(r.Step))
	addLabels(&q, r.Labels)
	return q
}

func saveHeader(r *ckpt.SaveRequest) (http.Header, error) {
	if len(r.Metadata) == 0 && r.Program == nil && len(r.Trees) == 0 {
		return nil, nil
	}
	if err := ckpt.CheckTrees(r.Trees); err != nil {
		return nil, err
	}
	if err := wellformed.Metadata(r.Metadata); err != nil {
		return nil, err
	}
	if r.Program != nil && !utf8.ValidString(r.Program.Source) {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "program.source is not valid UTF-8")
	}
	h := http.Header{}
	if len(r.Metadata) > 0 {
		h[ipc.HeaderMetadata] = []string{headerJSON(r.Metadata)}
	}
	if r.Program != nil {
		program, err := json.Marshal(r.Program)
		if err != nil {
			return nil, ckpt.Wrap(ckpt.CodeInvalid, err, "the program cannot be written as JSON")
		}
		h[ipc.HeaderProgram] = []string{headerJSON(program)}
	}
	if len(r.Trees) > 0 {
		h[ipc.HeaderTree] = []string{strings.Join(r.Trees, ",")}
	}
	return h, nil
}

// headerJSON writes JSON for a header: on one line of printable ASCII. In JSON, other
// characters occur only inside strings, and line ends only outside.
func headerJSON(raw []byte) string {
	b := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		switch {
		case r < ' ':
			b = append(b, ' ')
		case r < 0x7f:
			b = append(b, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = appendEscape(appendEscape(b, high), low)
		default:
			b = appendEscape(b, r)
		}
		raw = raw[size:]
	}
	return string(b)
}

func appendEscape(b []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	return append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}
