package usage

import (
	"fmt"
	"reflect"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// rowCost is what a row takes beside its texts: its numbers, and its places in
// the indexes.
const rowCost = 100

// LengthOf is the length of an argument that is text or bytes, 0 of another.
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

const timeLength = 24 // of a time as it is stored

// LogLength is what a row of the audit log takes.
func LogLength(r *ckpt.AuditRow) int64 {
	return rowCost + timeLength + int64(len(r.Who)+len(r.Action)+len(r.Owner)+len(r.Agent)+len(r.Run)+len(r.Subject)+len(r.Outcome)+
		len(r.Reason)+len(r.Detail)+len(r.Prev)+len(r.Hash))
}

// logLengths is LogLength in SQL.
var logLengths = lengths("at", "who", "action", "owner", "agent", "run", "subject", "outcome", "reason", "detail", "prev", "hash")

// lengths is what a row with these columns takes, in SQL. octet_length does not
// read what it measures.
func lengths(columns ...string) string {
	var b strings.Builder
	fmt.Fprint(&b, rowCost)
	for _, column := range columns {
		fmt.Fprintf(&b, " + coalesce(octet_length(%s), 0)", column)
	}
	return b.String()
}
