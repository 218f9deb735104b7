package ckptsidecar

import "strings"

// StepName returns the name of a step that gives none: its key without a counter, an id or a date at
// the end. Then calls of one kind have one name: search-1 and search-2 are both search.
func StepName(key string) string {
	name := key
	for {
		begin := strings.LastIndexAny(name, "-_./:#@~ ") + 1
		if n := len(name) - uuidLength; n >= 0 && isUUID(name[n:]) {
			begin = n
		}
		last := name[begin:]
		switch {
		case isCounter(last):
			name = strings.TrimRight(name[:begin], "-_./:#@~ ")
		default:
			if begin := strings.TrimRight(name, "0123456789"); len(begin) > 0 {
				name = begin
			}
			return name
		}
		if name == "" {
			return "step"
		}
	}
}

// leastID is the number of letters from which a word with a digit is taken for an id.
const leastID = 8

// isCounter reports whether a word is a number, an id, or a part of a date.
func isCounter(word string) bool {
	digits, others := 0, 0
	for _, c := range word {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c != 'T' && c != 'Z':
			others++
		}
	}
	return word == "" || digits > 0 && (others == 0 || len(word) >= leastID)
}

// uuidLength is the length of a UUID as text.
const uuidLength = 36
