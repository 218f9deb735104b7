package jsontext

// SkipSpace returns the place of the next byte of a text that is not white space.
func SkipSpace(text []byte, p int) int { return skipSpace(text, p) }

// ValueEnd returns the place after the value that begins at p. The text must have been checked.
func ValueEnd(text []byte, p int) int { return skipValue(text, p) }

// TypeOf is the type of a value in the terms of JSON Schema, "" for an empty text.
func TypeOf(value []byte) string {
	if value = value[SkipSpace(value, 0):]; len(value) == 0 {
		return ""
	}
	switch value[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// StringEnd returns the place after the string whose opening quote is at p, or the end of the text
// if the string does not end.
func StringEnd(text []byte, p int) int {
	for p++; p < len(text) && text[p] != '"'; p++ {
		if text[p] == '\\' {
			p++
		}
	}
	return min(p+1, len(text))
}

// Nesting is the largest number of arrays and objects that are open at once in a text. It does not
// check the text, and takes linear time.
func Nesting(text []byte) int {
	open, most := 0, 0
	for p := 0; p < len(text); p++ {
		switch text[p] {
		case '"':
			p = StringEnd(text, p) - 1
		case '[', '{':
			open++
			most = max(most, open)
		case ']', '}':
			open--
		}
	}
	return most
}
