package console

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// stateView is one part of a state, of any size: its members, each with the value that it had before.
type stateView struct {
	frame
	Page, Raw      string
	Seq, Old       int64 // of the checkpoint, and of the one that it is compared with; 0 for none
	Crumbs         []crumb
	Rows           []stateRow
	Text           string // of a value without parts
	Cut            int64  // the size of that value in bytes, if it is too long for a page
	Count          string
	Earlier, Later string
	Only, All      string // the addresses that show only what changed, and everything
	Masked         bool
	Show           string
}

type crumb struct{ Name, Href string }

// stateRow is a member. Change is "", added, changed or removed.
type stateRow struct{ Name, Href, Size, Value, Was, Change string }

const (
	rowsOfState = 200
	mostText    = 256 << 10
)

func (c *Console) statePage(w http.ResponseWriter, r *http.Request) {
	owner, q := r.PathValue("owner"), r.URL.Query()
	line, ref, err := c.refOf(r)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	v, err := c.stateOf(r.Context(), line, ref, q)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	v.frame = c.frameOf(r, ref.Agent+" / "+ref.Run, "runs")
	v.Head, v.Crumb = "State "+draw.Count(v.Seq)+" of "+v.Title, owner
	v.address(runPath(v.Base, owner, ref.Agent, ref.Run), q)
	v.Raw = v.Base + "raw/" + url.PathEscape(owner) + "/" + url.PathEscape(q.Get("cp"))
	c.show(w, r, http.StatusOK, "state", v)
}

// stateOf reads a checkpoint and the one that it is compared with: its parent, if the address names none.
func (c *Console) stateOf(ctx context.Context, line client.Operator, ref ckpt.RunRef, q url.Values) (*stateView, error) {
	cp, err := line.Checkpoint(ctx, q.Get("cp"), false)
	if err != nil {
		return nil, err
	}
	if cp.Agent != ref.Agent || cp.Run != ref.Run {
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "the checkpoint is not of this run")
	}
	if !ckpt.IsJSON(cp.ContentType) {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the state is not JSON: take it with Raw")
	}
	state, err := line.State(ctx, cp.ID)
	if err != nil {
		return nil, err
	}
	v := &stateView{Seq: cp.Seq}
	var old []byte
	before := q.Get("against")
	if before == "" {
		before = string(cp.Parent)
	}
	if before != "" {
		was, err := line.Checkpoint(ctx, before, false)
		if err == nil && was.Agent == ref.Agent && ckpt.IsJSON(was.ContentType) {
			if old, err = line.State(ctx, was.ID); err == nil {
				v.Old = was.Seq
			}
		}
		if err != nil && ckpt.CodeOf(err) != ckpt.CodeNotFound {
			return nil, err
		}
	}
	var hide []string
	if q.Get("show") != "secrets" {
		paths, err := placesOfSecrets(ctx, line, ref)
		if err != nil {
			return nil, err
		}
		hide = append(secretsIn(state, paths), secretsIn(old, paths)...)
	}
	v.Masked = len(hide) > 0
	return v, v.fill(state, old, q, hide)
}

// parts visits the members of an object, or the elements of an array.
func parts(value []byte, visit func(name string, value []byte) bool) {
	i := -1
	jsontext.Members(value, visit)
	jsontext.Elements(value, func(x []byte) bool { i++; return visit(strconv.Itoa(i), x) })
}

// partAt finds the value at a pointer; nil if there is none.
func partAt(value []byte, pointer string) []byte {
	for _, name := range strings.Split(pointer, "/")[1:] {
		var found []byte
		name = jsontext.UnescapePointer(name)
		parts(value, func(x string, v []byte) bool {
			if x == name {
				found = v
			}
			return found == nil
		})
		value = found
	}
	return value
}

// fill arranges the part at the pointer of the address.
func (v *stateView) fill(state, old []byte, q url.Values, hide []string) error {
	if jsontext.Check(state) != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "the state cannot be read as JSON")
	}
	at := q.Get("at")
	now, was := partAt(bytes.TrimSpace(state), at), partAt(bytes.TrimSpace(old), at)
	if now == nil || at != "" && at[0] != '/' {
		return ckpt.Errorf(ckpt.CodeNotFound, "the state has nothing at %q", at)
	}
	if now[0] != '{' && now[0] != '[' {
		if v.Text = strings.TrimSuffix(maskedJSON(string(now), hide), "\n"); len(v.Text) > mostText {
			v.Text, v.Cut = strings.ToValidUTF8(v.Text[:mostText], ""), int64(len(now))
		}
		return nil
	}
	from, _ := strconv.Atoi(q.Get("from"))
	before := map[string][]byte{}
	parts(was, func(name string, value []byte) bool { before[name] = value; return true })
	n := 0
	row := func(name string, value, was []byte, change string) {
		if q.Get("only") != "" && change == "" && v.Old != 0 {
			return
		}
		if n++; n > from && n <= from+rowsOfState {
			v.Rows = append(v.Rows, rowOfState(name, value, was, change, hide))
		}
	}
	count := 0
	parts(now, func(name string, value []byte) bool {
		count++
		was, there := before[name]
		delete(before, name)
		change := ""
		switch {
		case v.Old == 0:
		case !there:
			change = "added"
		case !bytes.Equal(was, value):
			change = "changed"
		}
		row(name, value, was, change)
		return true
	})
	parts(was, func(name string, value []byte) bool {
		if _, gone := before[name]; gone {
			row(name, nil, value, "removed")
		}
		return true
	})
	v.Count = draw.Plural(count, map[byte]string{'{': "member", '[': "element"}[now[0]])
	if from > 0 {
		v.Earlier = strconv.Itoa(max(0, from-rowsOfState))
	}
	if n > from+rowsOfState {
		v.Later = strconv.Itoa(from + rowsOfState)
	}
	return nil
}

func rowOfState(name string, value, was []byte, change string, hide []string) stateRow {
	row := stateRow{Name: name, Change: change}
	whole := func(x []byte) bool { return len(x) > 0 && x[0] != '{' && x[0] != '[' }
	if whole(was) && change != "" && change != "added" {
		row.Was = cutValue(string(was), hide)
	}
	switch {
	case change == "removed":
		if !whole(was) {
			row.Was = draw.Bytes(int64(len(was)))
		}
	case whole(value):
		if row.Value = cutValue(string(value), hide); row.Value == "" {
			row.Value = "“”"
		}
		if len(value) > mostDiffValue {
			row.Href = name
		}
	default:
		row.Href, row.Size = name, map[byte]string{'{': "object", '[': "list"}[value[0]]+", "+draw.Bytes(int64(len(value)))
	}
	return row
}

// address completes the links of the view.
func (v *stateView) address(page string, q url.Values) {
	v.Page = page + "?cp=" + url.QueryEscape(q.Get("cp"))
	link := func(change map[string]string) string {
		to := url.Values{}
		for _, name := range []string{"cp", "against", "at", "show", "only", "from"} {
			value, is := change[name]
			if !is {
				value = q.Get(name)
			}
			if value != "" {
				to.Set(name, value)
			}
		}
		return page + "/state?" + to.Encode()
	}
	at := q.Get("at")
	for i := range v.Rows {
		if v.Rows[i].Href != "" {
			v.Rows[i].Href = link(map[string]string{"at": at + "/" + jsontext.EscapePointer(v.Rows[i].Name), "from": ""})
		}
		v.Rows[i].Name = draw.FirstLine(v.Rows[i].Name, mostValue)
	}
	v.Crumbs = []crumb{{"the whole state", link(map[string]string{"at": "", "from": ""})}}
	for i, name := range strings.Split(at, "/")[1:] {
		end := len(strings.Join(strings.SplitN(at, "/", i+3)[:i+2], "/"))
		v.Crumbs = append(v.Crumbs, crumb{draw.FirstLine(jsontext.UnescapePointer(name), mostValue), link(map[string]string{"at": at[:end], "from": ""})})
	}
	if v.Earlier != "" {
		v.Earlier = link(map[string]string{"from": v.Earlier})
	}
	if v.Later != "" {
		v.Later = link(map[string]string{"from": v.Later})
	}
	v.Show = link(map[string]string{"show": "secrets"})
	if v.Old != 0 && v.Count != "" {
		if q.Get("only") == "" {
			v.Only = link(map[string]string{"only": "changed", "from": ""})
		} else {
			v.All = link(map[string]string{"only": "", "from": ""})
		}
	}
}
