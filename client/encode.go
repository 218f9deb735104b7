package client

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// Encode writes a value as JSON, by the rules of encoding/json. It takes out
// what JSON cannot hold, so that the rest can be saved. removed names each such
// place as a JSON pointer.
//
//	a value that contains itself    null at the place where it would begin again
//	NaN and the infinities          null
//	channels, functions, complex    null
//	text that is not UTF-8          each wrong byte becomes U+FFFD
//	a value whose own method fails  null
//
// Everything else is encoded completely: time.Time, []byte (base64) and large integers
// have the form that encoding/json writes and reads back.
func Encode(v any) (state []byte, removed []string, err error) {
	state, err = marshal(v)
	if err == nil && !bytes.Contains(state, []byte(`\ufffd`)) && !bytes.Contains(state, []byte("\ufffd")) {
		return state, nil, nil
	}
	e := &encoder{}
	if clean := e.value(reflect.ValueOf(v), ""); err != nil || len(e.removed) > 0 {
		state, err = marshal(clean)
	}
	if err != nil {
		return nil, nil, ckpt.Wrap(ckpt.CodeInvalid, err, "the state cannot be written as JSON: %v", err)
	}
	return state, e.removed, nil
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// encoder walks a value and builds a copy that JSON can hold.
type encoder struct {
	removed []string
	inside  []visit // the pointers on the path to the current value
}

type visit struct {
	at  uintptr
	len int
	of  reflect.Type
}

// member is one field of a struct or one entry of a map.
type member struct {
	name  string
	value any
}

// object holds a struct's fields in their order. A map would lose the order.
type object []member

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := marshal(m.value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

func (e *encoder) remove(path string) any {
	e.removed = append(e.removed, path)
	return nil
}

func (e *encoder) value(v reflect.Value, path string) any {
	if !v.IsValid() {
		return nil
	}
	if own, ok := e.own(v, path); ok {
		return own
	}
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return e.remove(path)
		}
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return e.remove(path)
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			e.removed = append(e.removed, path)
			return strings.ToValidUTF8(v.String(), "\ufffd")
		}
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return e.through(v, path, func() any { return e.value(v.Elem(), path) })
	case reflect.Slice:
		if v.IsNil() {
			return nil
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return v.Interface()
		}
		return e.through(v, path, func() any { return e.list(v, path) })
	case reflect.Array:
		return e.list(v, path)
	case reflect.Map:
		if v.IsNil() {
			return nil
		}
		return e.through(v, path, func() any { return e.entries(v, path) })
	case reflect.Struct:
		return e.fields(v, path)
	}
	return v.Interface()
}

// own encodes a value with its own method, if its type has one.
func (e *encoder) own(v reflect.Value, path string) (any, bool) {
	if (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil() || !v.CanInterface() {
		return nil, false
	}
	x := v.Interface()
	if v.CanAddr() && v.Addr().CanInterface() { // the method can be declared on the pointer
		x = v.Addr().Interface()
	}
	switch x.(type) {
	case json.Marshaler, encoding.TextMarshaler:
	default:
		return nil, false
	}
	text, err := json.Marshal(x)
	if err != nil {
		return e.remove(path), true
	}
	return json.RawMessage(text), true
}

// through follows a pointer, a slice or a map, unless the value contains itself.
func (e *encoder) through(v reflect.Value, path string, inside func() any) any {
	if v.Kind() == reflect.Interface {
		return inside()
	}
	here := visit{at: v.Pointer(), of: v.Type()}
	if v.Kind() == reflect.Slice {
		here.len = v.Len()
	}
	if slices.Contains(e.inside, here) && (v.Kind() != reflect.Slice || v.Len() > 0) {
		return e.remove(path)
	}
	e.inside = append(e.inside, here)
	defer func() { e.inside = e.inside[:len(e.inside)-1] }()
	return inside()
}

func (e *encoder) list(v reflect.Value, path string) any {
	list := make([]any, v.Len())
	for i := range list {
		list[i] = e.value(v.Index(i), path+"/"+strconv.Itoa(i))
	}
	return list
}

func (e *encoder) entries(v reflect.Value, path string) any {
	o := make(object, 0, v.Len())
	for it := v.MapRange(); it.Next(); {
		name, ok := keyText(it.Key())
		if !ok {
			e.remove(path + "/" + jsontext.EscapePointer(fmt.Sprint(it.Key())))
			continue
		}
		o = append(o, member{name, e.value(it.Value(), path+"/"+jsontext.EscapePointer(name))})
	}
	slices.SortFunc(o, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return o
}

func keyText(k reflect.Value) (string, bool) {
	if k.Kind() == reflect.String {
		return strings.ToValidUTF8(k.String(), "\ufffd"), true
	}
	if m, ok := k.Interface().(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		return string(text), err == nil
	}
	switch {
	case k.CanInt():
		return strconv.FormatInt(k.Int(), 10), true
	case k.CanUint():
		return strconv.FormatUint(k.Uint(), 10), true
	}
	return "", false
}

// fields encodes a struct's fields by the rules of encoding/json.
func (e *encoder) fields(v reflect.Value, path string) any {
	o := object{}
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		embedded := f.Anonymous && structOf(f.Type)
		if !f.IsExported() && !embedded || name == "-" && options == "" || embedded && name == "" || insideNamed(v.Type(), f) {
			continue
		}
		field, err := v.FieldByIndexErr(f.Index)
		if err != nil || hidden(v.Type(), f) || strings.Contains(","+options+",", ",omitempty,") && isEmpty(field) ||
			strings.Contains(","+options+",", ",omitzero,") && field.IsZero() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		value := e.value(field, path+"/"+jsontext.EscapePointer(name))
		if strings.Contains(","+options+",", ",string,") && value != nil {
			value = quoted(value)
		}
		o = append(o, member{name, value})
	}
	return o
}

// quoted implements the option "string" of a field's tag: it returns a number, a boolean
// or a string as JSON text.
func quoted(value any) any {
	switch reflect.ValueOf(value).Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.String:
		if text, err := marshal(value); err == nil {
			return string(text)
		}
	}
	return value
}

// insideNamed reports whether a field belongs to an embedded struct that is a member with
// its own name.
func insideNamed(t reflect.Type, f reflect.StructField) bool {
	for n := 1; n < len(f.Index); n++ {
		if name, _, _ := strings.Cut(t.FieldByIndex(f.Index[:n]).Tag.Get("json"), ","); name != "" {
			return true
		}
	}
	return false
}

func structOf(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

// hidden reports whether another field has the same name as this field of an embedded
// struct and takes precedence.
func hidden(t reflect.Type, f reflect.StructField) bool {
	found, ok := t.FieldByName(f.Name)
	return ok && !slices.Equal(found.Index, f.Index)
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Uintptr, reflect.Float32, reflect.Float64, reflect.Interface, reflect.Pointer:
		return v.IsZero()
	}
	return false
}
