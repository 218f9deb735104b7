package meter

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
)

// Value decodes a JSON text for rules and schemas. A number that a float64 cannot hold, such as a
// whole number of 400 digits, becomes the largest or smallest that it can.
func Value(text []byte) (any, error) {
	var value any
	err := json.Unmarshal(text, &value)
	var number *json.UnmarshalTypeError
	if !errors.As(err, &number) {
		return value, err
	}
	var exact any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&exact); err != nil {
		return nil, err
	}
	return inFloats(exact), nil
}

// inFloats makes floating point numbers of all numbers in a value.
func inFloats(value any) any {
	switch value := value.(type) {
	case json.Number:
		f, _ := value.Float64() // out of range it is an infinity
		return max(min(f, math.MaxFloat64), -math.MaxFloat64)
	case []any:
		for i := range value {
			value[i] = inFloats(value[i])
		}
	case map[string]any:
		for key, item := range value {
			value[key] = inFloats(item)
		}
	}
	return value
}
