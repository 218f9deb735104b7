package langgraph

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// The state of a checkpoint of LangGraph is one JSON document that a person can
// read:
//
//	{"langgraph":1,"thread":…,"ns":…,"values":{channel: value, …},"parent":…,"checkpoint":{…},"metadata":{…},
//	 "manifest":[{"channel":…,"version":…,"type":…,"encoding":…,"length":…}, …],"head_at":…}
//
// A value is stored byte for byte if its type says that it is JSON and it is valid JSON; any other
// value is base64. length is the length of the value itself, and head_at is where "parent" begins,
// so that values are found without reading the document. Values that have not changed since the
// parent come first, because their hash is known.

// graphFormat is the value of "langgraph".
const graphFormat = 1

const (
	encodingJSON   = "json"
	encodingBase64 = "base64"
)

// manifestEntry describes a value.
type manifestEntry struct {
	Channel  string    `json:"channel"`
	Version  ckpt.JSON `json:"version"`
	Type     string    `json:"type"`
	Encoding string    `json:"encoding"`
	Length   int       `json:"length"`
}

// graphDocument is a checkpoint in the form of its state.
type graphDocument struct {
	ckpt.GraphThread
	Parent     ckpt.Ref
	Checkpoint ckpt.JSON
	Metadata   ckpt.JSON
	Values     []graphValue
}

// graphValue is a value and its encoding in a document; "" until the encoding is determined.
type graphValue struct {
	ckpt.GraphValue
	encoding string
}

// write makes the state, in a buffer that memory returns for a size.
func (d *graphDocument) write(memory func(int) []byte) ([]byte, error) {
	manifest := make([]manifestEntry, len(d.Values))
	size := len(d.Thread)*6 + len(d.NS)*6 + 128
	for i := range d.Values {
		v := &d.Values[i]
		manifest[i] = manifestEntry{v.Channel, v.Version, v.Type, v.standsAs(), len(v.Data)}
		size += len(v.Channel)*6 + len(`"":"",`) + base64.StdEncoding.EncodedLen(len(v.Data))
	}
	head, err := d.head(manifest)
	if err != nil {
		return nil, err
	}
	b := append(memory(size + len(head))[:0], `{"langgraph":`...)
	b = strconv.AppendInt(b, graphFormat, 10)
	b = ledger.AppendString(append(b, `,"thread":`...), d.Thread)
	b = ledger.AppendString(append(b, `,"ns":`...), d.NS)
	b = append(b, `,"values":{`...)
	for i := range d.Values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(ledger.AppendString(b, d.Values[i].Channel), ':')
		b = appendGraphValue(b, manifest[i].Encoding, d.Values[i].Data)
	}
	b = append(b, "},"...)
	at := len(b)
	b = append(append(b, head...), headAt...)
	return append(strconv.AppendInt(b, int64(at), 10), '}'), nil
}

// headAt is the name of the last member of a document.
const headAt = `,"head_at":`

// head is the part after the values.
func (d *graphDocument) head(manifest []manifestEntry) ([]byte, error) {
	list, err := json.Marshal(manifest)
	if err != nil {
		return nil, err
	}
	b := ledger.AppendRef([]byte(`"parent":`), d.Parent)
	b = append(append(b, `,"checkpoint":`...), d.Checkpoint...)
	b = append(append(b, `,"metadata":`...), ledger.MetadataText(json.RawMessage(d.Metadata))...)
	return append(append(b, `,"manifest":`...), list...), nil
}

// standsAs is the encoding of a value in the document.
func (v *graphValue) standsAs() string {
	if v.encoding == "" {
		v.encoding = encodingBase64
		if isGraphJSON(&v.GraphBytes) {
			v.encoding = encodingJSON
		}
	}
	return v.encoding
}

// isGraphJSON says whether a value's type says JSON and the value is JSON.
func isGraphJSON(v *ckpt.GraphBytes) bool {
	return strings.HasSuffix(v.Type, "json") && jsontext.Check(v.Data) == nil
}

func appendGraphValue(b []byte, encoding string, data []byte) []byte {
	if encoding == encodingJSON {
		return append(b, data...)
	}
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), data), '"')
}

// readGraphDocument reads a state. The values are parts of the state, or copies.
func readGraphDocument(state []byte) (*graphDocument, error) {
	d, manifest, values, err := readGraphHead(state)
	if err != nil {
		return nil, &blob.DamageError{What: "its head cannot be read: " + err.Error()}
	}
	if d.cutValues(values, manifest) {
		return d, nil
	}
	return d, d.parseValues(values, manifest)
}

// graphMembers are all members of a document except the values.
type graphMembers struct {
	Format     int             `json:"langgraph"`
	Thread     string          `json:"thread"`
	NS         string          `json:"ns"`
	Parent     ckpt.Ref        `json:"parent"`
	Checkpoint ckpt.JSON       `json:"checkpoint"`
	Metadata   ckpt.JSON       `json:"metadata"`
	Manifest   []manifestEntry `json:"manifest"`
}

// readGraphHead reads everything except the values, and returns the text of the values.
func readGraphHead(state []byte) (*graphDocument, []manifestEntry, []byte, error) {
	m, values := readGraphMembers(state)
	if m == nil { // a secret was redacted, and the offsets are wrong
		var whole struct {
			graphMembers
			Values json.RawMessage `json:"values"`
		}
		if err := json.Unmarshal(state, &whole); err != nil {
			return nil, nil, nil, err
		}
		m, values = &whole.graphMembers, whole.Values
	}
	if m.Format != graphFormat || m.Thread == "" || m.Checkpoint == nil {
		return nil, nil, nil, &blob.DamageError{What: "it is not a checkpoint of LangGraph"}
	}
	return &graphDocument{GraphThread: ckpt.GraphThread{Thread: m.Thread, NS: m.NS}, Parent: m.Parent,
		Checkpoint: m.Checkpoint, Metadata: m.Metadata}, m.Manifest, values, nil
}

// readGraphMembers reads the part before the values and, by head_at, the part after them. It
// returns nil if the state is not as it was written.
func readGraphMembers(state []byte) (*graphMembers, []byte) {
	tail := state[max(0, len(state)-len(headAt)-20):]
	last := bytes.LastIndex(tail, []byte(headAt))
	if last < 0 || len(tail) < last+len(headAt)+2 {
		return nil, nil
	}
	at, err := strconv.Atoi(string(tail[last+len(headAt) : len(tail)-1]))
	if err != nil || at < 2 || at >= len(state) || !bytes.HasPrefix(state[at:], []byte(`"parent":`)) {
		return nil, nil
	}
	m := new(graphMembers)
	if json.Unmarshal(append([]byte{'{'}, state[at:]...), m) != nil {
		return nil, nil
	}
	from, ok := m.readBefore(state)
	if !ok || from > at-1 {
		return nil, nil
	}
	return m, state[from : at-1]
}

// readBefore reads the part before the values, and returns where the values begin.
func (m *graphMembers) readBefore(state []byte) (int, bool) {
	in := json.NewDecoder(bytes.NewReader(state))
	_, err := in.Token()
	for _, to := range []any{&m.Format, &m.Thread, &m.NS} {
		if err == nil {
			_, err = in.Token()
		}
		if err == nil {
			err = in.Decode(to)
		}
	}
	if err != nil {
		return 0, false
	}
	const values = `,"values":`
	from := int(in.InputOffset())
	return from + len(values), bytes.HasPrefix(state[from:], []byte(values))
}

// cutValues finds the values by their lengths. It returns false if they are not where they should
// be, because a secret was redacted.
func (d *graphDocument) cutValues(text []byte, manifest []manifestEntry) bool {
	d.Values = make([]graphValue, len(manifest))
	var name []byte
	for i := range manifest {
		m := &manifest[i]
		name = append(name[:0], ',')
		if i == 0 {
			name[0] = '{'
		}
		name = append(ledger.AppendString(name, m.Channel), ':')
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
	return bytes.Equal(text, []byte("}")) || len(manifest) == 0
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

func (m *manifestEntry) value(data []byte) graphValue {
	version := m.Version
	if string(version) == "null" {
		version = nil
	}
	return graphValue{ckpt.GraphValue{Channel: m.Channel, Version: version, GraphBytes: ckpt.GraphBytes{Type: m.Type, Data: data}}, m.Encoding}
}

// parseValues finds the values by parsing the JSON.
func (d *graphDocument) parseValues(text []byte, manifest []manifestEntry) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil {
		return &blob.DamageError{What: "its values cannot be read"}
	}
	d.Values = make([]graphValue, 0, len(manifest))
	for i := range manifest {
		raw, there := values[manifest[i].Channel]
		data, ok := manifest[i].decode(raw)
		if !there || !ok {
			return &blob.DamageError{What: "the value of its channel " + strconv.Quote(manifest[i].Channel) + " cannot be read"}
		}
		d.Values = append(d.Values, manifest[i].value(data))
	}
	return nil
}

// channels are the channels that have a value, in the form of the column.
func (d *graphDocument) channels() (string, error) {
	list := make([]string, len(d.Values))
	for i := range d.Values {
		list[i] = d.Values[i].Channel
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// carry takes over the values that a request leaves to its parent, at the versions that its
// checkpoint names, and returns the channels that the parent lacks. These values come first, in the
// parent's order, and share the parent's bytes.
func (d *graphDocument) carry(parent *graphDocument, names []string, versions map[string]ckpt.JSON) (missing []string) {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	values := make([]graphValue, 0, len(d.Values)+len(names))
	for i := range parent.Values {
		if v := &parent.Values[i]; wanted[v.Channel] && sameVersion(v.Version, versions[v.Channel]) {
			values = append(values, *v)
			delete(wanted, v.Channel)
		}
	}
	d.Values = append(values, d.Values...)
	return slices.Sorted(maps.Keys(wanted))
}

// graphValues converts the values that a client has sent.
func graphValues(values []ckpt.GraphValue, versions map[string]ckpt.JSON) []graphValue {
	list := make([]graphValue, len(values))
	for i := range values {
		list[i].GraphValue = values[i]
		list[i].Version = versions[values[i].Channel]
	}
	return list
}

// answer returns the values without their encoding in the document. If have is not nil, values have tags, and come
// without the bytes that the caller has. The other bytes are copied if the document is lent.
func (d *graphDocument) answer(have map[string]string, lent bool) []ckpt.GraphValue {
	list := make([]ckpt.GraphValue, len(d.Values))
	for i := range d.Values {
		v := &list[i]
		*v = d.Values[i].GraphValue
		if have != nil {
			v.Tag = graphTag(&v.GraphBytes)
		}
		switch {
		case v.Tag != "" && v.Tag == have[v.Channel]:
			v.Held, v.Data = true, nil
		case lent:
			v.Data = bytes.Clone(v.Data)
		}
	}
	return list
}

// graphSeeds make tags unpredictable, so that a client cannot construct two values with one tag.
var graphSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// graphTag names a value by its type and bytes, with 128 bits for each; "" if the value is small. It costs much less
// than sending the value, or hashing it with SHA-256.
func graphTag(v *ckpt.GraphBytes) string {
	if len(v.Data) < ckpt.GraphTagFrom {
		return ""
	}
	var tag []byte
	for _, seed := range graphSeeds {
		tag = binary.BigEndian.AppendUint64(tag, maphash.String(seed, v.Type))
		tag = binary.BigEndian.AppendUint64(tag, maphash.Bytes(seed, v.Data))
	}
	return hex.EncodeToString(tag)
}

// graphTags are the tags of values by their channels.
func graphTags(values []ckpt.GraphValue) map[string]string {
	tags := map[string]string{}
	for i := range values {
		if tag := graphTag(&values[i].GraphBytes); tag != "" {
			tags[values[i].Channel] = tag
		}
	}
	return tags
}

// sameVersion compares two versions, as JSON. A missing version equals nothing.
func sameVersion(a, b ckpt.JSON) bool {
	return a != nil && b != nil && string(b) != "null" && sameJSON(a, b)
}

// sameJSON compares two JSON values, however they are written.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, err := jsontext.Canonical(a)
	if err != nil {
		return false
	}
	y, err := jsontext.Canonical(b)
	return err == nil && bytes.Equal(x, y)
}
