package jsontext

// StringEnd is the place after the string whose opening quote is at p, or the
// end of the text where the string has none.
func StringEnd(text []byte, p int) int {
	for p++; p < len(text) && text[p] != '"'; p++ {
		if text[p] == '\\' {
			p++
		}
	}
	return min(p+1, len(text))
}

// Nesting is how many arrays and objects are open at once at the deepest place
// of a text. It does not check the text, and takes linear time.
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
