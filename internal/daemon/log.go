package daemon

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// Logger creates the log in its configured form. w is standard error. The log goes to w
// unless the form is auto and the service manager has its own log: the journal of
// systemd, or, for a service, the event log of Windows. The level can be changed while
// the log is in use.
func (c *Config) Logger(w io.Writer, service bool) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	if l, err := c.Level(); err == nil { // Check reports what is wrong with it
		level.Set(l)
	}
	options := &slog.HandlerOptions{Level: level}
	switch c.LogFormat {
	case LogJSON:
		return slog.New(slog.NewJSONHandler(w, options)), level
	case LogText:
		return slog.New(slog.NewTextHandler(w, options)), level
	}
	if send := managersLog(service); send != nil {
		return slog.New(newSending(level, send, slog.NewTextHandler(w, options))), level
	}
	return slog.New(slog.NewTextHandler(w, options)), level
}

// entry is a log line for a log that stores fields.
type entry struct {
	level   slog.Level
	message string
	text    string      // the fields as text, for people
	fields  []slog.Attr // the names contain the groups: "request.route"
}

// sending is a handler that sends each line to a log that stores fields. If that log does
// not accept a line, the line goes to the other handler, so that nothing is lost.
type sending struct {
	level slog.Leveler
	send  func(entry) error
	other slog.Handler

	group  string
	fields []slog.Attr
}

func newSending(level slog.Leveler, send func(entry) error, otherwise slog.Handler) *sending {
	return &sending{level: level, send: send, other: otherwise}
}

func (h *sending) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

func (h *sending) Handle(ctx context.Context, r slog.Record) error {
	e := entry{level: r.Level, message: r.Message, fields: append([]slog.Attr{}, h.fields...)}
	r.Attrs(func(a slog.Attr) bool {
		e.fields = flatten(e.fields, h.group, a)
		return true
	})
	e.text = textOf(e.fields)
	if err := h.send(e); err != nil {
		return h.other.Handle(ctx, r)
	}
	return nil
}

func (h *sending) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.fields = append([]slog.Attr{}, h.fields...)
	for _, a := range attrs {
		next.fields = flatten(next.fields, h.group, a)
	}
	next.other = h.other.WithAttrs(attrs)
	return &next
}

func (h *sending) WithGroup(name string) slog.Handler {
	next := *h
	next.group = h.group + name + "."
	next.other = h.other.WithGroup(name)
	return &next
}

// flatten replaces a group by its fields, with the group in their names.
func flatten(list []slog.Attr, group string, a slog.Attr) []slog.Attr {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		return append(list, slog.Attr{Key: group + a.Key, Value: v})
	}
	if a.Key != "" {
		group += a.Key + "."
	}
	for _, inner := range v.Group() {
		list = flatten(list, group, inner)
	}
	return list
}

// texts holds buffers for writing fields in the way of slog's own text handler.
var texts = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func textOf(fields []slog.Attr) string {
	b := texts.Get().(*bytes.Buffer)
	defer texts.Put(b)
	b.Reset()
	h := slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.MessageKey, slog.TimeKey, slog.LevelKey:
			return slog.Attr{}
		}
		return a
	}})
	r := slog.Record{}
	r.AddAttrs(fields...)
	_ = h.Handle(context.Background(), r) // writing to a buffer cannot fail
	return strings.TrimSpace(b.String())
}
