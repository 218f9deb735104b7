package jsontext

// The reasons for which a text is refused. Reasons that name a key are built where they are found.
const (
	reasonEnd         = "unexpected end"
	reasonAfter       = "data after the value"
	reasonUTF8        = "invalid UTF-8"
	reasonBOM         = "byte order mark before the value"
	reasonControl     = "unescaped control character in a string"
	reasonEscape      = "invalid escape in a string"
	reasonNumber      = "invalid number"
	reasonNaN         = "NaN and Infinity are not JSON"
	reasonValue       = "expected a value"
	reasonFirstKey    = `expected a key or "}"`
	reasonKey         = "expected a key"
	reasonColon       = `expected ":"`
	reasonCommaBrace  = `expected "," or "}"`
	reasonCommaSquare = `expected "," or "]"`
	reasonTooLong     = "longer than 4 GiB"
)
