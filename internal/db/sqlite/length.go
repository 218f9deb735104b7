package sqlite

import (
	"reflect"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// RowCost is how many bytes a row uses besides its texts: its numbers, and its entries in the
// indexes.
const RowCost = 100

// LengthOf is the length of an argument that is text or bytes, 0 for any other.
func LengthOf(arg any) int64 {
	switch v := arg.(type) {
	case nil, int64, int, bool:
		return 0
	case string:
		return int64(len(v))
	case []byte:
		return int64(len(v))
	case ckpt.Ref:
		return int64(len(v))
	case ckpt.JSON:
		return int64(len(v))
	case ckpt.Time:
		return timeLength
	case ckpt.Labels:
		n := int64(2)
		for key, value := range v {
			n += int64(len(key)+len(value)) + 6
		}
		return n
	}
	if v := reflect.ValueOf(arg); v.Kind() == reflect.String || v.Kind() == reflect.Slice {
		return int64(v.Len())
	}
	return 0
}

// RowLength is how many bytes a row with these texts uses.
func RowLength(texts ...any) int64 {
	bytes := int64(RowCost)
	for _, text := range texts {
		bytes += LengthOf(text)
	}
	return bytes
}

const timeLength = 24 // of a stored time
