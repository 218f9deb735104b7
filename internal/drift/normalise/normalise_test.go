package normalise

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNormalise(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"", ""},
		{"plain words, 12 of them", "plain words, 12 of them"},

		{"at 2026-11-21T10:00:00Z", "at <time>"},
		{"at 2026-11-21T10:00:00.123456+02:00.", "at <time>."},
		{"2026-11-21 10:00:00,123 INFO ready", "<time> INFO ready"},
		{"2026/11/21 10:00 done", "<time> done"},
		{"20261121T100000Z", "<time>"},
		{"[21/Nov/2026:10:00:00 +0100] GET /", "[<time>] GET /"},
		{"Sat, 21 Nov 2026 10:00:00 GMT", "<time>"},
		{"Sat Nov 21 10:00:00 UTC 2026", "<time>"},
		{"-rw-r--r-- 1 root root 1551 Nov 21 19:03 tox.ini", "-rw-r--r-- 1 root root 1551 <time> tox.ini"},
		{"took from 10:00:00 to 10:00:01.5", "took from <time> to <time>"},
		{`{"created_at":5,"n":7}`, `{"created_at":<time>,"n":7}`},
		{"updated 1763719200", "updated <time>"},
		{"updated 1763719200.25", "updated <time>"},
		{"updated 1763719200123", "updated <time>"},

		{"ran 12ms", "ran <duration>"},
		{"ran in 1.30s.", "ran in <duration>."},
		{"ran for 1m30s", "ran for <duration>"},
		{"2 failed in 5.34 seconds", "2 failed in <duration>"},
		{"waited 3 minutes", "waited <duration>"},
		{`{"duration_ms": 12, "elapsed": 0.5}`, `{"duration_ms": <duration>, "elapsed": <duration>}`},

		{"id 3f2504e0-4f89-11d3-9a0c-0305e82c3301 is new", "id <uuid> is new"},
		{"ID=3F2504E0-4F89-11D3-9A0C-0305E82C3301", "ID=<uuid>"},
		{"pid 4711 ended", "pid <pid> ended"},
		{"PID: 4711, ppid=12", "PID: <pid>, ppid=<pid>"},
		{"sshd[812]: closed", "sshd[<pid>]: closed"},
		{"process 4711 exited", "process <pid> exited"},
		{"/bin/bash: line 62215: javac: command not found", "/bin/bash: line <line>: javac: command not found"},
		{"sh: line 1: cd: /x: No such file", "sh: line <line>: cd: /x: No such file"},
		{"<Foo object at 0x7f8b1c0d2e50>", "<Foo object at <address>>"},

		{"\x1b[1;31merror\x1b[0m: no", "error: no"},
		{"\x1b]0;title\x07text\x1b(B", "text"},
		{"a\x1b[2Kb\x1b7c\x1b", "abc"},
		{"a\tb  c \r\n\n  d\x00\n", "a b c\nd"},

		// The content of an answer stays.
		{"due on 2026-11-21", "due on 2026-11-21"},
		{"the train at 19:03", "the train at 19:03"},
		{"3/40 files, 12 %, 5m wide, 25.3°C, wind 20.5 km/h", "3/40 files, 12 %, 5m wide, 25.3°C, wind 20.5 km/h"},
		{"main.go: line 12: undefined; flush: line 3 of 7", "main.go: line 12: undefined; flush: line 3 of 7"},
		{"version 1.10.2, line 1234, 0xff", "version 1.10.2, line 1234, 0xff"},
		{"received 1763719200 bytes", "received 1763719200 bytes"},
		{`"received_bytes":1763719200`, `"received_bytes":1763719200`},
		{"process 12 of 400", "process 12 of 400"},
		{"list[3]: x", "list[<pid>]: x"}, // it looks the same as a log line
		{"item3s 4th x12ms", "item3s 4th x12ms"},
		{"deadbeef-dead-beef-dead-beefdeadbeefcafe", "deadbeef-dead-beef-dead-beefdeadbeefcafe"},
		{"11:22:33:44:55:66", "11:22:33:44:55:66"},
		{"Marching 21 10:00", "Marching 21 10:00"},
	} {
		if got := string(Text([]byte(test.in))); got != test.want {
			t.Errorf("%q becomes\n%q, not\n%q", test.in, got, test.want)
		}
	}
}

// TestTheSameAnswerAtAnotherTime: the same answer at two times is equal, and
// another answer is not.
func TestTheSameAnswerAtAnotherTime(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"2026-11-21T10:00:00Z worker 3f2504e0-4f89-11d3-9a0c-0305e82c3301 (pid 12) ran 0.12s", "2026-11-22T23:59:59.5Z worker ffffffff-4f89-11d3-9a0c-0305e82c3301 (pid 90112) ran 12.5s", true},
		{"=== 1 failed, 186 passed in 1.30s ===", "=== 1 failed, 186 passed in 2.07s ===", true},
		{"=== 1 failed, 186 passed in 1.30s ===", "=== 2 failed, 185 passed in 1.30s ===", false},
		{"\x1b[32mok\x1b[0m", "ok", true},
		{"temperature 25.3", "temperature 25.4", false},
		{"page 3", "page 4", false},
		{`{"balance": 1200}`, `{"balance": 1300}`, false},
	} {
		if same := bytes.Equal(Text([]byte(test.a)), Text([]byte(test.b))); same != test.same {
			t.Errorf("same is %v of\n%q and\n%q", same, test.a, test.b)
		}
	}
}

func FuzzNormalise(f *testing.F) {
	for _, s := range []string{
		"at 2026-11-21T10:00:00Z pid 12 \x1b[0m 0x7f8b1c0d2e50", "Sat, 21 Nov 2026 10:00:00 GMT", "1m30s 5 s 1.5ms", "sshd[812]: ",
		"3f2504e0-4f89-11d3-9a0c-0305e82c3301", "\x1b]0;x", "1763719200", "\x1b(䛫[", "took 10:00:00 1", "duration_ms=10:00:00", "\x1b\x1b[0m[0m", "Nov 2110:00:00",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		once := Text(text)
		if again := Text(once); !bytes.Equal(once, again) {
			t.Errorf("%q becomes %q, and that %q", text, once, again)
		}
		if len(once) > 4*len(text)+16 {
			t.Errorf("%d bytes became %d", len(text), len(once))
		}
		if bytes.IndexByte(once, 0x1b) >= 0 || bytes.IndexByte(once, '\r') >= 0 {
			t.Errorf("%q still has control characters", once)
		}
		if utf8.Valid(text) && !utf8.Valid(once) {
			t.Errorf("%q is UTF-8 and %q is not", text, once)
		}
		// An escape sequence inside changes nothing, as long as it does not
		// split a word.
		if i := bytes.IndexByte(text, ' '); i >= 0 && bytes.IndexByte(text, 0x1b) < 0 {
			coloured := string(text[:i]) + "\x1b[31m" + string(text[i:])
			if got := Text([]byte(coloured)); !bytes.Equal(got, once) {
				t.Errorf("%q with a colour becomes %q, not %q", text, got, once)
			}
		}
	})
}

// TestNormaliseIsLinear: the time is linear; a longer text does not take longer
// per byte.
func TestNormaliseIsLinear(t *testing.T) {
	for _, unit := range []string{"\x1b]", "\x1b[", "1:", "a[1", "1m", "3f2504e0-", "pid ", "\x1b]0;"} {
		Text([]byte(strings.Repeat(unit, 200_000)))
	}
}
