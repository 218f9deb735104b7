package jsontext

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Decode checks data as Check does and decodes it into v, a non-nil pointer, as encoding/json
// would, with one difference: at every level, an object's keys must be exactly the names of the
// fields of the struct that it is decoded into. Unknown keys are refused, and so are keys that
// differ in case. Types that implement json.Unmarshaler (such as json.RawMessage) and empty
// interfaces accept any value. Maps accept any key, and their values are decoded by the same rules,
// as is the target of a pointer within an interface. Slices are always new. A value's own decoder
// gets the value's bytes without another check.
//
// The error is an *Error, or a *json.InvalidUnmarshalError if v is no pointer. After an error, v
// may be partly filled.
func Decode(data []byte, v any) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return &json.InvalidUnmarshalError{Type: reflect.TypeOf(v)}
	}
	if err := check(data); err != nil {
		return err
	}
	d := decoder{data}
	if _, err := d.value(skipSpace(data, 0), target.Elem()); err != nil {
		return err
	}
	return nil
}

// decoder decodes checked data. Its methods take the place of a value and return the place after
// it.
type decoder struct{ data []byte }

func (d *decoder) fault(p int, reason string) *Error {
	return newError(d.data, p, reason)
}

func (d *decoder) mismatch(p int, want string) *Error {
	return d.fault(p, "expected "+want+", got "+typeName(d.data[p]))
}

// typeName names the type of a value by its first byte.
func typeName(c byte) string {
	switch c {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

func (d *decoder) value(p int, v reflect.Value) (int, *Error) {
	if next, handled, err := d.custom(p, v); handled {
		return next, err
	}
	if d.data[p] == 'n' {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice:
			v.SetZero()
		}
		return p + len("null"), nil // other kinds keep their value
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return d.value(p, v.Elem())
	case reflect.Interface:
		return d.iface(p, v)
	case reflect.Struct:
		return d.structure(p, v)
	case reflect.Map:
		return d.mapping(p, v)
	case reflect.Slice:
		if d.data[p] == '"' && v.Type().Elem().Kind() == reflect.Uint8 {
			return d.base64(p, v)
		}
		return d.slice(p, v)
	case reflect.Array:
		return d.array(p, v)
	}
	return d.scalar(p, v)
}

// custom lets a value's own UnmarshalJSON or UnmarshalText read it.
func (d *decoder) custom(p int, v reflect.Value) (next int, handled bool, fault *Error) {
	if v.Kind() == reflect.Pointer || !v.CanAddr() || !v.Addr().CanInterface() {
		return p, false, nil
	}
	switch u := v.Addr().Interface().(type) {
	case json.Unmarshaler:
		end := skipValue(d.data, p)
		if err := u.UnmarshalJSON(d.data[p:end:end]); err != nil {
			return p, true, d.refused(p, v, err)
		}
		return end, true, nil
	case encoding.TextUnmarshaler:
		switch d.data[p] {
		case 'n':
			return p, false, nil
		case '"':
			text, end := d.text(p)
			if err := u.UnmarshalText(text); err != nil {
				return p, true, d.refused(p, v, err)
			}
			return end, true, nil
		}
		return p, true, d.mismatch(p, "a string")
	}
	return p, false, nil
}

// refused makes the error for a type's own decoder that returned cause. The text of cause is not
// shown, because it may quote the value. But if cause comes from this package, its text is safe and
// its place is more exact. A type that has the method Form says in words what it takes.
func (d *decoder) refused(p int, v reflect.Value, cause error) *Error {
	var inner *Error
	if !errors.As(cause, &inner) {
		if t, ok := v.Interface().(interface{ Form() string }); ok {
			return d.fault(p, "expected "+t.Form())
		}
		return d.fault(p, "not a valid "+v.Type().String())
	}
	if inner.Offset < 0 || p+inner.Offset > len(d.data) {
		return d.fault(p, inner.Reason)
	}
	fault := d.fault(p+inner.Offset, inner.Reason)
	fault.Path = pathAt(d.data, p) + inner.Path
	return fault
}

// text returns the text of the string at p, as encoding/json would.
func (d *decoder) text(p int) (text []byte, next int) {
	next, _ = scanString(d.data, p)
	text = d.data[p+1 : next-1 : next-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		text = appendUnescaped(nil, text, true)
	}
	return text, next
}

// iface decodes into the target of a pointer in the interface, or else leaves the choice of types
// to encoding/json, which can only refuse numbers that float64 cannot hold and interfaces with
// methods.
func (d *decoder) iface(p int, v reflect.Value) (int, *Error) {
	if e := v.Elem(); e.Kind() == reflect.Pointer && !e.IsNil() && e.Elem().Kind() != reflect.Interface {
		return d.value(p, e.Elem())
	}
	end := skipValue(d.data, p)
	err := json.Unmarshal(d.data[p:end], v.Addr().Interface())
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil:
		return end, nil
	case v.NumMethod() == 0 && errors.As(err, &wrongType) && strings.HasPrefix(wrongType.Value, "number"):
		return p, d.fault(p, "a number in this value is out of range")
	}
	return p, d.fault(p, "cannot be read into "+v.Type().String())
}

func (d *decoder) structure(p int, v reflect.Value) (int, *Error) {
	if d.data[p] != '{' {
		return p, d.mismatch(p, "an object")
	}
	fields := fieldsOf(v.Type())
	return d.members(p, func(key, value int) (int, *Error) {
		name, _ := d.text(key)
		field, ok := fields[string(name)]
		if !ok {
			return key, d.fault(key, unknownField(name, fields))
		}
		target, ok := fieldByIndex(v, field.index)
		if !ok {
			return key, d.fault(key, fmt.Sprintf("field %q cannot be set", cutKey(string(name))))
		}
		if field.quoted {
			return d.quoted(value, target)
		}
		return d.value(value, target)
	})
}

// members calls each with the places of each key and value of the object at p.
func (d *decoder) members(p int, each func(key, value int) (int, *Error)) (int, *Error) {
	for p = skipSpace(d.data, p+1); d.data[p] != '}'; p = skipComma(d.data, p) {
		end, _ := scanString(d.data, p)
		value := skipSpace(d.data, skipSpace(d.data, end)+1)
		next, fault := each(p, value)
		if fault != nil {
			return p, fault
		}
		p = next
	}
	return p + 1, nil
}

// skipComma moves from the end of a member to the next member or to the closing bracket, in checked
// data.
func skipComma(data []byte, p int) int {
	if p = skipSpace(data, p); data[p] == ',' {
		p = skipSpace(data, p+1)
	}
	return p
}

func unknownField(name []byte, fields map[string]field) string {
	reason := fmt.Sprintf("unknown field %q", cutKey(string(name)))
	var near []string
	for known := range fields {
		if strings.EqualFold(known, string(name)) {
			near = append(near, known)
		}
	}
	if len(near) == 0 {
		return reason
	}
	return fmt.Sprintf("%s: did you mean %q?", reason, slices.Min(near))
}
