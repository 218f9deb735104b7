package notify

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func TestWrongConfigurationsAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"webhooks":{"a":{"url":"http://example.com/x","secret_file":"/s"}}}`:                                  "https",
		`{"webhooks":{"a":{"url":"ftp://example.com/x","secret_file":"/s"}}}`:                                   "https",
		`{"webhooks":{"a":{"url":"https://u:p@example.com/x","secret_file":"/s"}}}`:                             "url",
		`{"webhooks":{"a":{"url":"https://example.com/x"}}}`:                                                    "secret_file",
		`{"webhooks":{"a":{"url":"https://example.com/x","secret_file":"/s","secret":"x"}}}`:                    "secret",
		`{"webhooks":{"A":{"url":"https://example.com/x","secret_file":"/s"}}}`:                                 "name",
		`{"webhooks":{"a":{"url":"https://example.com/x","secret_file":"/s","events":["x"]}}}`:                  "no event",
		`{"webhooks":{"a":{"url":"https://example.com/x","secret_file":"/s","timeout":"1h"}}}`:                  "timeout",
		`{"commands":{"a":{"run":["page"]}}}`:                                                                   "absolute path",
		`{"commands":{"a":{"run":[]}}}`:                                                                         "absolute path",
		`{"commands":{"a":{"run":["/p"]}},"webhooks":{"a":{"url":"https://example.com/x","secret_file":"/s"}}}`: "two hooks",
		`{"retry":"2h"}`: "retry",
	} {
		if _, err := ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	c, err := ParseConfig([]byte(`{"webhooks":{"ops":{"url":"http://127.0.0.1:1/x","secret_file":"/s"}},"commands":{"pager":{"run":["/p"],"events":["run.dead"]}}}`))
	if err != nil || strings.Join(c.Names(), " ") != "ops pager" || len(c.Types("ops")) != len(ckpt.NoticeTypes) || len(c.Types("pager")) != 1 {
		t.Errorf("%+v %v", c, err)
	}
}

// TestSignature uses the example from the Standard Webhooks specification.
func TestSignature(t *testing.T) {
	t.Parallel()
	secret, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := Sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signed %s, want %s", got, want)
	}
}

// TestErrorsHaveNoSecrets: the error of a failed attempt contains no secret of the hook, neither the path of the
// address nor the key.
func TestErrorsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("whsec_"+base64.StdEncoding.EncodeToString([]byte("a very secret key of 32 bytes!!!"))), 0o600); err != nil {
		t.Fatal(err)
	}
	var status int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://example.com/")
		w.WriteHeader(status)
	}))
	send := func() error {
		w := Webhook{URL: server.URL + "/path-token-1", SecretFile: file, Timeout: ckpt.Duration(time.Minute)}
		return w.send(t.Context(), "msg_1", []byte(`{}`), time.Now())
	}
	for _, status = range []int{500, 302, 410, 429} {
		if err := send(); err == nil || strings.Contains(err.Error(), "token-1") {
			t.Errorf("%d: %v", status, err)
		}
	}
	status = 204
	if err := send(); err != nil {
		t.Error(err)
	}
	server.Close()
	if err := send(); err == nil || strings.Contains(err.Error(), "token-1") || strings.Contains(err.Error(), "very secret") {
		t.Errorf("nobody there: %v", err)
	}
}
