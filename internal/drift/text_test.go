package drift

import (
	"encoding/json"
	"testing"
)

// FuzzContentOf: both the fast and the slow path read a JSON string like
// encoding/json.
func FuzzContentOf(f *testing.F) {
	for _, s := range []string{
		`""`, `"plain"`, `"a\nb\t\"c\" \\ \/ \r\b\f"`, `"\u00e9 \ud83d\ude00"`, `"é 😀"`, "\"\xff\"", `"\x"`, `"\"`, `"`, "\"a\nb\"",
		`"a" "b"`, `12`, `null`, `{"a":1}`, `"ends in \\"`, `"\\\"`, ` "space"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		var want string
		if json.Unmarshal(value, &want) != nil {
			want = ""
		}
		if got := string(contentOf(value)); got != want {
			t.Errorf("contentOf(%q) is %q, want %q", value, got, want)
		}
	})
}
