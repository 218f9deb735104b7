package db

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// The state of a checkpoint of LangGraph is one JSON document that a person can
// read:
//
//	{"langgraph":1,"thread":…,"ns":…,"parent":…,"checkpoint":{…},"metadata":{…},
//	 "manifest":[{"channel":…,"version":…,"type":…,"encoding":…,"length":…}, …],"values":{channel: value, …}}
//
// A value whose type says that it is JSON, and which is, stands there byte for
// byte; any other is base64. length is that of the value itself. So values are
// found without reading the document.

// graphFormat is the number behind "langgraph".
const graphFormat = 1

const (
	encodingJSON   = "json"
	encodingBase64 = "base64"
)

// manifestEntry is what is said of a value.
type manifestEntry struct {
	Channel  string    `json:"channel"`
	Version  ckpt.JSON `json:"version"`
	Type     string    `json:"type"`
	Encoding string    `json:"encoding"`
	Length   int       `json:"length"`
}

// graphDocument is a checkpoint as its state has it.
type graphDocument struct {
	ckpt.GraphThread
	Parent     ckpt.Ref
	Checkpoint ckpt.JSON
	Metadata   ckpt.JSON
	Values     []ckpt.GraphValue
}

// write makes the state, in memory that is given by its size.
func (d *graphDocument) write(memory func(int) []byte) ([]byte, error) {
	manifest := make([]manifestEntry, len(d.Values))
	size := len(`"values":{}}`)
	for i := range d.Values {
		v := &d.Values[i]
		manifest[i] = manifestEntry{v.Channel, v.Version, v.Type, encodingOf(v), len(v.Data)}
		size += len(v.Channel)*6 + len(`"":"",`) + base64.StdEncoding.EncodedLen(len(v.Data))
	}
	head, err := d.head(manifest)
	if err != nil {
		return nil, err
	}
	b := append(memory(len(head) + size)[:0], head...)
	b = append(b, `"values":{`...)
	for i := range d.Values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, d.Values[i].Channel), ':')
		b = appendGraphValue(b, manifest[i].Encoding, d.Values[i].Data)
	}
	return append(b, "}}"...), nil
}

// head is the document up to its values.
func (d *graphDocument) head(manifest []manifestEntry) ([]byte, error) {
	list, err := json.Marshal(manifest)
	if err != nil {
		return nil, err
	}
	b := append([]byte(`{"langgraph":`), strconv.Itoa(graphFormat)...)
	b = appendString(append(b, `,"thread":`...), d.Thread)
	b = appendString(append(b, `,"ns":`...), d.NS)
	b = appendRef(append(b, `,"parent":`...), d.Parent)
	b = append(append(b, `,"checkpoint":`...), d.Checkpoint...)
	b = append(append(b, `,"metadata":`...), metadataText(json.RawMessage(d.Metadata))...)
	b = append(append(b, `,"manifest":`...), list...)
	return append(b, ','), nil
}

// encodingOf says how a value stands in the document.
func encodingOf(v *ckpt.GraphValue) string {
	if isGraphJSON(&v.GraphBytes) {
		return encodingJSON
	}
	return encodingBase64
}

// isGraphJSON says whether a value is what its type may say: JSON.
func isGraphJSON(v *ckpt.GraphBytes) bool {
	return strings.HasSuffix(v.Type, "json") && ckpt.CheckJSON(v.Data) == nil
}

func appendGraphValue(b []byte, encoding string, data []byte) []byte {
	if encoding == encodingJSON {
		return append(b, data...)
	}
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), data), '"')
}

// readGraphDocument reads a state. The values are parts of it, or copies.
func readGraphDocument(state []byte) (*graphDocument, error) {
	d, manifest, at, err := readGraphHead(state)
	if err != nil {
		return nil, &damageError{what: "its head cannot be read: " + err.Error()}
	}
	if d.cutValues(state[at:], manifest) {
		return d, nil
	}
	return d, d.parseValues(state[at:], manifest)
}

// readGraphHead reads all but the values, and answers where they begin.
func readGraphHead(state []byte) (*graphDocument, []manifestEntry, int64, error) {
	d, manifest, format := &graphDocument{}, []manifestEntry{}, 0
	in := json.NewDecoder(bytes.NewReader(state))
	if _, err := in.Token(); err != nil {
		return nil, nil, 0, err
	}
	members := map[string]any{"langgraph": &format, "thread": &d.Thread, "ns": &d.NS, "parent": &d.Parent,
		"checkpoint": &d.Checkpoint, "metadata": &d.Metadata, "manifest": &manifest}
	for {
		name, err := in.Token()
		if err != nil {
			return nil, nil, 0, err
		}
		if name == "values" {
			break
		}
		to, known := members[name.(string)]
		if !known {
			to = new(json.RawMessage)
		}
		if err := in.Decode(to); err != nil {
			return nil, nil, 0, err
		}
	}
	if format != graphFormat || d.Thread == "" || d.Checkpoint == nil {
		return nil, nil, 0, &damageError{what: "it is no checkpoint of LangGraph"}
	}
	at := in.InputOffset()
	return d, manifest, at + int64(bytes.IndexByte(state[at:], '{')), nil
}

// cutValues finds the values by their lengths, and answers false where they
// stand otherwise: a secret was taken out.
func (d *graphDocument) cutValues(text []byte, manifest []manifestEntry) bool {
	d.Values = make([]ckpt.GraphValue, len(manifest))
	var name []byte
	for i := range manifest {
		m := &manifest[i]
		name = append(name[:0], ',')
		if i == 0 {
			name[0] = '{'
		}
		name = append(appendString(name, m.Channel), ':')
		length := m.Length
		if m.Encoding == encodingBase64 {
			length = base64.StdEncoding.EncodedLen(m.Length) + 2
		}
		if !bytes.HasPrefix(text, name) || length < 0 || len(text) < len(name)+length+1 {
			return false
		}
		raw := text[len(name) : len(name)+length]
		if text = text[len(name)+length:]; text[0] != ',' && text[0] != '}' {
			return false
		}
		data, ok := m.decode(raw)
		if !ok || len(data) != m.Length {
			return false
		}
		d.Values[i] = m.value(data)
	}
	return bytes.Equal(text, []byte("}}")) || len(manifest) == 0
}

// decode undoes appendGraphValue.
func (m *manifestEntry) decode(raw []byte) ([]byte, bool) {
	if m.Encoding != encodingBase64 {
		return raw, true
	}
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return nil, false
	}
	data, err := base64.StdEncoding.AppendDecode(nil, raw[1:len(raw)-1])
	return data, err == nil
}

func (m *manifestEntry) value(data []byte) ckpt.GraphValue {
	version := m.Version
	if string(version) == "null" {
		version = nil
	}
	return ckpt.GraphValue{Channel: m.Channel, Version: version, GraphBytes: ckpt.GraphBytes{Type: m.Type, Data: data}}
}

// parseValues reads the values as JSON says where they are.
func (d *graphDocument) parseValues(text []byte, manifest []manifestEntry) error {
	var values map[string]json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&values); err != nil {
		return &damageError{what: "its values cannot be read"}
	}
	d.Values = make([]ckpt.GraphValue, 0, len(manifest))
	for i := range manifest {
		raw, there := values[manifest[i].Channel]
		data, ok := manifest[i].decode(raw)
		if !there || !ok {
			return &damageError{what: "the value of its channel " + strconv.Quote(manifest[i].Channel) + " cannot be read"}
		}
		d.Values = append(d.Values, manifest[i].value(data))
	}
	return nil
}

// channels are those that have a value, as the column has them.
func (d *graphDocument) channels() (string, error) {
	list := make([]string, len(d.Values))
	for i := range d.Values {
		list[i] = d.Values[i].Channel
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// carry takes over what a request leaves to its parent, at the versions that
// its checkpoint names, and answers what the parent has not. Values stay where
// the parent has them.
func (d *graphDocument) carry(parent *graphDocument, names []string, versions map[string]ckpt.JSON) (missing []string) {
	sent := make(map[string]*ckpt.GraphValue, len(d.Values))
	for i := range d.Values {
		sent[d.Values[i].Channel] = &d.Values[i]
	}
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	values := make([]ckpt.GraphValue, 0, len(sent)+len(names))
	for i := range parent.Values { // in its order, so that what has not changed stays where it is
		v := &parent.Values[i]
		switch own := sent[v.Channel]; {
		case own != nil:
			values = append(values, *own)
		case wanted[v.Channel] && sameVersion(v.Version, versions[v.Channel]):
			values = append(values, *v)
		default:
			continue
		}
		delete(sent, v.Channel)
		delete(wanted, v.Channel)
	}
	for i := range d.Values {
		if sent[d.Values[i].Channel] != nil {
			values = append(values, d.Values[i])
		}
	}
	d.Values = values
	return slices.Sorted(maps.Keys(wanted))
}

// sameVersion compares two versions, as JSON. There is none of a value that has
// none.
func sameVersion(a, b ckpt.JSON) bool {
	return a != nil && b != nil && string(b) != "null" && sameJSON(a, b)
}

// sameJSON compares two JSON values, however they are written.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, err := ckpt.CanonicalJSON(a)
	if err != nil {
		return false
	}
	y, err := ckpt.CanonicalJSON(b)
	return err == nil && bytes.Equal(x, y)
}
