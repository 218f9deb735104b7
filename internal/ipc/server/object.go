package server

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// member is one member of a JSON object as it is written: the key with its quotes.
type member struct {
	name       string // the key, unescaped
	key, value []byte
}

// members splits a JSON object that has been checked, and returns whether it was one. It
// does not look into the values.
func members(doc []byte) ([]member, bool) {
	p := jsontext.SkipSpace(doc, 0)
	if p == len(doc) || doc[p] != '{' {
		return nil, false
	}
	var list []member
	for p = jsontext.SkipSpace(doc, p+1); p < len(doc) && doc[p] != '}'; {
		keyEnd := jsontext.StringEnd(doc, p)
		from := jsontext.SkipSpace(doc, jsontext.SkipSpace(doc, keyEnd)+1)
		to := jsontext.ValueEnd(doc, from)
		list = append(list, member{name: keyName(doc[p:keyEnd]), key: doc[p:keyEnd], value: doc[from:to]})
		if p = jsontext.SkipSpace(doc, to); p < len(doc) && doc[p] == ',' {
			p = jsontext.SkipSpace(doc, p+1)
		}
	}
	return list, true
}

// keyName unescapes a key. Keys with lone surrogates, which no Go string can hold, are
// distinguished by their spelling.
func keyName(key []byte) string {
	inner := string(key[1 : len(key)-1])
	if !strings.Contains(inner, `\`) {
		return inner
	}
	var name string
	if json.Unmarshal(key, &name) != nil || strings.ContainsRune(name, utf8.RuneError) {
		return inner
	}
	return name
}

// places returns the maximum number of values in a JSON text, which is the cost of a tree
// of it.
func places(doc []byte) int {
	return 1 + bytes.Count(doc, []byte{','}) + bytes.Count(doc, []byte{':'})
}

// pathBytes returns the total length of the JSON pointers to all values of a document:
// the minimum size of a list of them.
func pathBytes(doc []byte) (total int) {
	lengths := []int{0} // of the pointers to the objects and arrays that are open
	key := 1            // the length of the next value's key or index
	for p := 0; p < len(doc); p++ {
		switch doc[p] {
		case '"':
			end := jsontext.StringEnd(doc, p)
			key = max(key, end-p)
			p = end - 1
		case '{', '[':
			lengths = append(lengths, lengths[len(lengths)-1]+1+key)
			key = 1
		case '}', ']':
			lengths = lengths[:max(len(lengths)-1, 1)]
		case ',':
			total += lengths[len(lengths)-1] + 1 + key
			key = 1
		}
	}
	return total
}
