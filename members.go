package ckptsidecar

// Members calls visit with each member of a JSON object, in order, until visit
// answers false: its name, and its value as it stands in the text, which must
// not be changed. It answers whether the text is an object and was read to its
// end or to where visit wanted it.
//
// It is for texts that CheckJSON has accepted, and far faster than decoding
// them. Of others it may miss what is wrong, but it reads nothing beyond them.
func Members(object []byte, visit func(name string, value []byte) bool) bool {
	p := skipSpace(object, 0)
	if p >= len(object) || object[p] != '{' {
		return false
	}
	p = skipSpace(object, p+1)
	if p < len(object) && object[p] == '}' {
		return true
	}
	for {
		if p >= len(object) || object[p] != '"' {
			return false
		}
		end, reason := scanString(object, p)
		if reason != "" {
			return false
		}
		name := string(appendUnescaped(nil, object[p+1:end-1], true))
		p = skipSpace(object, end)
		if p >= len(object) || object[p] != ':' {
			return false
		}
		p = skipSpace(object, p+1)
		begin := p
		if p = passValue(object, p); p < 0 {
			return false
		}
		if !visit(name, object[begin:p:p]) {
			return true
		}
		p = skipSpace(object, p)
		if p >= len(object) || object[p] != ',' {
			return p < len(object) && object[p] == '}'
		}
		p = skipSpace(object, p+1)
	}
}

// passValue is skipValue for data that may end too early: then it answers -1.
func passValue(data []byte, p int) int {
	for depth := 0; p < len(data); {
		switch data[p] {
		case '"':
			end, reason := scanString(data, p)
			if reason != "" {
				return -1
			}
			p = end
		case '{', '[':
			depth++
			p++
		case '}', ']':
			depth--
			p++
		default:
			p = skipScalar(data, p)
		}
		if depth <= 0 {
			return p
		}
	}
	return -1
}
