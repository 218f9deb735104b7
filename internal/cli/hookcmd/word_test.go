package hookcmd

import "testing"

func TestWordsOfACommandOnWindows(t *testing.T) {
	for word, want := range map[string]string{
		"plain":                    "plain",
		"":                         `""`,
		"two words":                `"two words"`,
		`^shell kubectl\s+delete`:  `"^shell kubectl\s+delete"`,
		`say "x"`:                  `"say \"x\""`,
		`a backslash at the end\`:  `"a backslash at the end\\"`,
		`a backslash before \"`:    `"a backslash before \\\""`,
		"C:/Program Files/x.exe":   `"C:/Program Files/x.exe"`,
		"//./pipe/ckptsidecar-own": "//./pipe/ckptsidecar-own",
	} {
		if got := quote("windows", word); got != want {
			t.Errorf("%s is written as %s, want %s", word, got, want)
		}
	}
}
