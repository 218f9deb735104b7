package secrets

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// The tokens here are made up. They are assembled from parts so that no scanner
// of this repository takes them for real ones.
var (
	key    = "sk-ant-" + strings.Repeat("a1B2", 10)
	github = "ghp_" + strings.Repeat("x9Y8", 9)
	pem    = "-----BEGIN RSA PRIV" + `ATE KEY-----\nMIIE\n-----END RSA PRIV` + "ATE KEY-----"
)

func TestFind(t *testing.T) {
	cases := map[string][]Secret{
		`{"a":1}`: nil,
		`{"config":{"API_Key":"abc12345"},"x":["` + github + `"]}`:            {{Path: "/config/API_Key", Kind: "an API key"}, {Path: "/x/0", Kind: "a GitHub token"}},
		`{"m":[{"content":"use ` + key + ` please"}]}`:                        {{Path: "/m/0/content", Kind: "an Anthropic API key"}},
		`{"password": "hunter2!", "n": {"client-secret":"s3cr3t!!"}}`:         {{Path: "/password", Kind: "a password"}, {Path: "/n/client-secret", Kind: "a client secret"}},
		`{"a/b~":{"pem":"` + pem + `"}}`:                                      {{Path: "/a~1b~0/pem", Kind: "a private key"}},
		`{"out":"LINE=1\n` + github + `\n\t` + key + `"}`:                     {{Path: "/out", Kind: "a GitHub token"}, {Path: "/out", Kind: "an Anthropic API key"}},
		`{"headers":{"Authorization":"Bearer ` + github + `"}}`:               {{Path: "/headers/Authorization", Kind: "an authorization header"}},
		`{"text":"the header Authorization: Bearer abc12345678901234567890"}`: {{Path: "/text", Kind: "a bearer token"}},
	}
	for state, want := range cases {
		if diff := cmp.Diff(want, (Scan{}).Find([]byte(state), true)); diff != "" {
			t.Errorf("%s:\n%s", state, diff)
		}
	}
}

// TestSilence: a value that is not a secret is not reported.
func TestSilence(t *testing.T) {
	for _, state := range []string{
		`{"password":null,"token":"abc","tokens":1234}`, `{"password":"${PASSWORD}"}`, `{"api_key":"<your key>"}`, `{"password":"xxxxxxxx"}`,
		`{"text":"ask-ant- risk-averse sk-learn task-force AKIA"}`, `{"secret":""}`, `["password","hunter22"]`, `{"text":"the password: is secret"}`,
		`{"a":"sk-` + strings.Repeat("a", 40) + `"}`, `{"output_tokens":"12345678"}`, `{"x":"-----BEGIN PUBLIC KEY-----"}`,
	} {
		if found := (Scan{}).Find([]byte(state), true); found != nil {
			t.Errorf("%s: %v", state, found)
		}
	}
}

func TestRedact(t *testing.T) {
	state := `{"password":"hunter2!","m":["a ` + key + ` b","` + github + `"],"n":1.50}`
	got, found := Scan{}.Redact([]byte(state), true)
	if want := `{"password":"[redacted]","m":["a [redacted] b","[redacted]"],"n":1.50}`; string(got) != want || len(found) != 3 {
		t.Errorf("%s %v", got, found)
	}
	if again, more := (Scan{}).Redact(got, true); more != nil || !bytes.Equal(again, got) {
		t.Errorf("what was redacted is found again: %v", more)
	}
	text, found := Scan{}.Redact([]byte("key="+key+"\n"), false)
	if string(text) != "key=[redacted]\n" || len(found) != 1 || found[0].Path != "" {
		t.Errorf("%s %v", text, found)
	}
}

// TestAKeyEndsWithItsString: a key that begins in one string does not end in
// another.
func TestAKeyEndsWithItsString(t *testing.T) {
	begin, end := "-----BEGIN RSA PRIV"+"ATE KEY-----", "-----END RSA PRIV"+"ATE KEY-----"
	state := `{"a":"` + begin + `","b":{"c":"` + end + `"}}`
	got, found := Scan{}.Redact([]byte(state), true)
	if want := `{"a":"[redacted]","b":{"c":"` + end + `"}}`; string(got) != want || len(found) != 1 {
		t.Errorf("%s %v", got, found)
	}
}

// TestEveryPlace finds a token at every position, and one at the end of the
// text.
func TestEveryPlace(t *testing.T) {
	for i := range 40 {
		for after := range 20 {
			text := strings.Repeat(" ", i) + github + strings.Repeat(" ", after)
			if found := (Scan{}).Find([]byte(text), false); len(found) != 1 {
				t.Fatalf("%q: %v", text, found)
			}
		}
	}
}

func TestNoValueIsNamed(t *testing.T) {
	for _, s := range (Scan{}).Find([]byte(`{"api_key":"canary-value-1","x":"`+key+`"}`), true) {
		if strings.Contains(s.Path+s.Kind, "canary") || strings.Contains(s.Path+s.Kind, key) {
			t.Errorf("a finding carries a value: %v", s)
		}
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"password":"hunter2!","a":["`+key+`"]}`), true)
	f.Add([]byte(`{"password":"a\"b\\"}`), true)
	f.Add([]byte(pem), false)
	f.Fuzz(func(t *testing.T, state []byte, json bool) {
		if json && jsontext.Check(state) != nil {
			return
		}
		out, found := Scan{}.Redact(state, json)
		if found == nil && !bytes.Equal(out, state) {
			t.Error("changed without a finding")
		}
		if json {
			if err := jsontext.Check(out); err != nil {
				t.Errorf("what was redacted is not JSON: %v\n%s\n%s", err, state, out)
			}
		}
	})
}

func BenchmarkFind(b *testing.B) {
	state := []byte(`{"messages":[` + strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"all work and no play makes Jack a dull boy, said the agent"},`, 700), ",") + `]}`)
	b.SetBytes(int64(len(state)))
	for b.Loop() {
		_ = Scan{}.Find(state, true)
	}
}
