package server

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// query is a request's parameters in their order. It is read strictly: a parameter that
// is unknown, repeated, empty or wrongly escaped is refused by name, because silently
// dropping a parameter would save into the wrong run.
type query []ipc.Parameter

func readQuery(raw string, known []string) (query, error) {
	if raw == "" {
		return nil, nil
	}
	q := make(query, 0, 8)
	for piece := range strings.SplitSeq(raw, "&") {
		if piece == "" {
			continue
		}
		p, err := readParameter(piece)
		if err != nil {
			return nil, err
		}
		if p.Name != ipc.OwnerParameter && !slices.Contains(known, p.Name) {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the query parameter %q is unknown here%s", shown(p.Name), instead(known))
		}
		if p.Name != ipc.LabelParameter && q.get(p.Name) != "" {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the query parameter %s was given twice", p.Name)
		}
		q = append(q, p)
	}
	return q, nil
}

func readParameter(piece string) (ipc.Parameter, error) {
	name, value, _ := strings.Cut(piece, "=")
	name, err := url.QueryUnescape(name)
	if err != nil || !utf8.ValidString(name) {
		return ipc.Parameter{}, ckpt.Errorf(ckpt.CodeInvalid, "a query parameter's name is not valid escaped UTF-8")
	}
	value, err = url.QueryUnescape(value)
	switch {
	case err != nil || !utf8.ValidString(value) || strings.Contains(piece, ";"):
		return ipc.Parameter{}, ckpt.Errorf(ckpt.CodeInvalid, "the query parameter %q is not valid escaped UTF-8", shown(name))
	case value == "":
		return ipc.Parameter{}, ckpt.Errorf(ckpt.CodeInvalid, "the query parameter %q has no value", shown(name))
	}
	return ipc.Parameter{Name: name, Value: value}, nil
}

func instead(known []string) string {
	if len(known) == 0 {
		return ""
	}
	return ": this call has " + strings.Join(known, ", ")
}

// shown shortens a caller's text for a message.
func shown(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// get returns a parameter's value, "" if it is absent.
func (q query) get(name string) string {
	for i := range q {
		if q[i].Name == name {
			return q[i].Value
		}
	}
	return ""
}

// refuse names the first parameter that a form of a call does not accept.
func (q query) refuse(why string, names ...string) error {
	for i := range q {
		if slices.Contains(names, q[i].Name) {
			return ckpt.Errorf(ckpt.CodeInvalid, "the query parameter %s is not allowed here: %s", q[i].Name, why)
		}
	}
	return nil
}

// flag returns a boolean, nil if it is absent.
func (q query) flag(name string) (*bool, error) {
	value := q.get(name)
	switch value {
	case "":
		return nil, nil
	case "true", "false":
		b := value == "true"
		return &b, nil
	}
	return nil, ckpt.Errorf(ckpt.CodeInvalid, "the query parameter %s must be true or false", name)
}

// is returns a boolean, def if it is absent.
func (q query) is(name string, def bool) (bool, error) {
	b, err := q.flag(name)
	if b == nil {
		return def, err
	}
	return *b, nil
}

// number returns a whole number, nil if it is absent.
func (q query) number(name string, least, most int64) (*int64, error) {
	value := q.get(name)
	if value == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < least || n > most {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the query parameter %s must be a whole number from %d to %d", name, least, most)
	}
	return &n, nil
}

// limit returns the size of a page, 0 for the default.
func (q query) limit() (int, error) {
	n, err := q.number("limit", 1, ckpt.MaxLimit)
	if n == nil {
		return 0, err
	}
	return int(*n), nil
}

// kind returns a kind of checkpoint, "" if it is absent.
func (q query) kind() (ckpt.Kind, error) {
	kind := ckpt.Kind(q.get("kind"))
	if kind == "" {
		return "", nil
	}
	return kind, ckpt.CheckKind(kind)
}

// run returns a run's name, "" if it is absent.
func (q query) run() (string, error) {
	run := q.get("run")
	if run == "" {
		return "", nil
	}
	return run, ckpt.CheckLife(run)
}

// time returns a time, the zero time if it is absent.
func (q query) time(name string) (ckpt.Time, error) {
	value := q.get(name)
	if value == "" {
		return ckpt.Time{}, nil
	}
	at, err := ckpt.ParseTime(value)
	if err != nil {
		return ckpt.Time{}, ckpt.Errorf(ckpt.CodeInvalid, "the query parameter %s must be a time like 2026-03-01T12:00:00Z", name)
	}
	return at, nil
}

// duration returns a length of time, 0 if it is absent.
func (q query) duration(name string) (ckpt.Duration, error) {
	value := q.get(name)
	if value == "" {
		return 0, nil
	}
	d, err := ckpt.ParseDuration(value)
	if err != nil {
		return 0, ckpt.Errorf(ckpt.CodeInvalid, "the query parameter %s must be a duration like 90s, 12h or 7d", name)
	}
	return d, nil
}

// labels returns the labels of every label=key=value.
func (q query) labels() (ckpt.Labels, error) {
	var labels ckpt.Labels
	for i := range q {
		if q[i].Name != ipc.LabelParameter {
			continue
		}
		key, value, found := strings.Cut(q[i].Value, "=")
		if !found {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the query parameter label must be key=value")
		}
		if _, twice := labels[key]; twice {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the label %q was given twice", shown(key))
		}
		if labels == nil {
			labels = make(ckpt.Labels)
		}
		labels[key] = value
	}
	return labels, ckpt.CheckLabels(labels)
}
