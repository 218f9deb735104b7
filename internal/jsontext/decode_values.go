package jsontext

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// quoted reads a field with the option ",string": a scalar within a string.
func (d *decoder) quoted(p int, v reflect.Value) (int, *Error) {
	switch d.data[p] {
	case 'n':
		return d.value(p, v)
	case '"':
	default:
		return p, d.mismatch(p, "a string")
	}
	text, end := d.text(p)
	if check(text) != nil || len(bytes.TrimSpace(text)) != len(text) {
		return p, d.fault(p, "expected a JSON scalar in the string")
	}
	inner := decoder{text}
	if _, fault := inner.value(0, v); fault != nil {
		return p, d.fault(p, fault.Reason+" in the string")
	}
	return end, nil
}

// fieldByIndex finds a field, and makes the embedded structs on the way to it. It returns false if
// one of these is a nil pointer to an unexported type.
func fieldByIndex(v reflect.Value, index []int) (reflect.Value, bool) {
	for i, n := range index {
		if i > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				if !v.CanSet() {
					return v, false
				}
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(n)
	}
	return v, v.CanSet() || v.Kind() == reflect.Struct
}

func (d *decoder) mapping(p int, v reflect.Value) (int, *Error) {
	if d.data[p] != '{' {
		return p, d.mismatch(p, "an object")
	}
	t := v.Type()
	if v.IsNil() {
		v.Set(reflect.MakeMap(t))
	}
	return d.members(p, func(key, value int) (int, *Error) {
		k := reflect.New(t.Key()).Elem()
		if fault := d.mapKey(key, k); fault != nil {
			return key, fault
		}
		elem := reflect.New(t.Elem()).Elem()
		next, fault := d.value(value, elem)
		if fault == nil {
			v.SetMapIndex(k, elem)
		}
		return next, fault
	})
}

// mapKey decodes a key as encoding/json does: as text, or as an integer in the text.
func (d *decoder) mapKey(p int, k reflect.Value) *Error {
	text, _ := d.text(p)
	ok := true
	if u, custom := k.Addr().Interface().(encoding.TextUnmarshaler); custom {
		ok = u.UnmarshalText(text) == nil
	} else if k.Kind() == reflect.String {
		k.SetString(string(text))
	} else if k.CanInt() || k.CanUint() {
		// Only one spelling of each number is allowed, otherwise "1" and "+1" would be one key
		// twice.
		ok = setInteger(k, string(text)) && integerText(k) == string(text)
	} else {
		return d.fault(p, "cannot be read into a map with keys of type "+k.Type().String())
	}
	if !ok {
		return d.fault(p, "key is not a valid "+k.Type().String())
	}
	return nil
}

func integerText(v reflect.Value) string {
	if v.CanInt() {
		return strconv.FormatInt(v.Int(), 10)
	}
	return strconv.FormatUint(v.Uint(), 10)
}

func (d *decoder) base64(p int, v reflect.Value) (int, *Error) {
	text, end := d.text(p)
	b, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return p, d.fault(p, "expected base64 text")
	}
	v.SetBytes(b)
	return end, nil
}

// slice decodes into new memory, so that an old slice, which others may share, is neither visible
// nor overwritten.
func (d *decoder) slice(p int, v reflect.Value) (int, *Error) {
	if d.data[p] != '[' {
		return p, d.mismatch(p, "an array")
	}
	s := reflect.New(v.Type()).Elem()
	s.Set(reflect.MakeSlice(v.Type(), 0, 0))
	next, fault := d.elements(p, func(n, p int) (int, *Error) {
		if n == s.Cap() {
			s.Grow(1)
		}
		s.SetLen(n + 1)
		return d.value(p, s.Index(n))
	})
	if fault == nil {
		v.Set(s)
	}
	return next, fault
}

// array ignores extra elements and zeroes missing ones, as encoding/json does.
func (d *decoder) array(p int, v reflect.Value) (int, *Error) {
	if d.data[p] != '[' {
		return p, d.mismatch(p, "an array")
	}
	count := 0
	next, fault := d.elements(p, func(n, p int) (int, *Error) {
		count = n + 1
		if n >= v.Len() {
			return skipValue(d.data, p), nil
		}
		return d.value(p, v.Index(n))
	})
	for i := count; i < v.Len(); i++ {
		v.Index(i).SetZero()
	}
	return next, fault
}

// elements calls each with the index and place of each element.
func (d *decoder) elements(p int, each func(n, p int) (int, *Error)) (int, *Error) {
	n := 0
	for p = skipSpace(d.data, p+1); d.data[p] != ']'; p = skipComma(d.data, p) {
		next, fault := each(n, p)
		if fault != nil {
			return p, fault
		}
		p = next
		n++
	}
	return p + 1, nil
}

func (d *decoder) scalar(p int, v reflect.Value) (int, *Error) {
	switch {
	case v.Type() == reflect.TypeFor[json.Number]():
		return d.jsonNumber(p, v)
	case v.Kind() == reflect.String:
		if d.data[p] != '"' {
			return p, d.mismatch(p, "a string")
		}
		text, end := d.text(p)
		v.SetString(string(text))
		return end, nil
	case v.Kind() == reflect.Bool:
		if c := d.data[p]; c != 't' && c != 'f' {
			return p, d.mismatch(p, "a boolean")
		}
		v.SetBool(d.data[p] == 't')
		return skipScalar(d.data, p), nil
	case v.CanInt() || v.CanUint() || v.CanFloat():
		return d.number(p, v)
	}
	return p, d.fault(p, "cannot be read into "+v.Type().String())
}

func isNumber(data []byte, p int) bool {
	return data[p] == '-' || isDigit(data[p])
}

// jsonNumber keeps a number's text, even if it comes in a string.
func (d *decoder) jsonNumber(p int, v reflect.Value) (int, *Error) {
	var text []byte
	var end int
	switch {
	case isNumber(d.data, p):
		end = skipScalar(d.data, p)
		text = d.data[p:end]
	case d.data[p] == '"':
		text, end = d.text(p)
		if len(text) == 0 || !isNumber(text, 0) {
			return p, d.fault(p, "expected a number in the string")
		}
		if n, reason := scanNumber(text, 0); reason != "" || n < len(text) {
			return p, d.fault(p, "expected a number in the string")
		}
	default:
		return p, d.mismatch(p, "a number")
	}
	v.SetString(string(text))
	return end, nil
}

func (d *decoder) number(p int, v reflect.Value) (int, *Error) {
	if !isNumber(d.data, p) {
		return p, d.mismatch(p, "a number")
	}
	end := skipScalar(d.data, p)
	text := string(d.data[p:end])
	if v.CanFloat() {
		f, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil || v.OverflowFloat(f) {
			return p, d.fault(p, "number out of range for "+v.Type().String())
		}
		v.SetFloat(f)
		return end, nil
	}
	if strings.ContainsAny(text, ".eE") {
		return p, d.fault(p, "expected an integer without fraction or exponent")
	}
	if !setInteger(v, text) {
		return p, d.fault(p, "number out of range for "+v.Type().String())
	}
	return end, nil
}

// setInteger sets v, which is of an integer kind, and says whether text is an integer that fits.
func setInteger(v reflect.Value, text string) bool {
	if v.CanInt() {
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err == nil {
			v.SetInt(n)
		}
		return err == nil
	}
	n, err := strconv.ParseUint(text, 10, v.Type().Bits())
	if err == nil {
		v.SetUint(n)
	}
	return err == nil
}
