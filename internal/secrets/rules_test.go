package secrets

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// fake makes up a text of n characters of a class.
func fake(class string, n int) string {
	text := strings.Builder{}
	for i := range n {
		text.WriteByte(class[(i*7+i/3)%len(class)])
	}
	return text.String()
}

const (
	letters = "qWeRtYuIoPaSdFgHjKlZxCvBnM"
	any36   = letters + "0192837465"
	hexes   = "0123456789abcdef"
	capital = "Q2W3E4R5T6Y7UIOPASDFGHJKLZXCVBNM"
)

// tokens has one of each form that the scanner looks for. They are assembled
// from parts so that no scanner of this repository takes them for real ones.
var tokens = []string{
	"sk-ant-" + "api03-" + fake(any36, 93) + "AA", "sk-proj-" + fake(any36, 48), "sk-svcacct-" + fake(any36, 48), "sk-or-v1-" + fake(hexes, 64), "sk-" + fake(any36, 48),
	"hf_" + fake(letters, 34), "gsk_" + fake(any36, 52), "xai-" + fake(any36, 80), "pplx-" + fake(any36, 48), "r8_" + fake(any36, 37), "nvapi-" + fake(any36, 64), "dapi" + fake(hexes, 32),
	"ghp_" + fake(letters, 36), "gho_" + fake(any36, 36), "ghu_" + fake(any36, 36), "ghs_" + fake(any36, 36), "ghr_" + fake(any36, 36), "github_pat_" + fake(any36, 82),
	"glpat-" + fake(any36, 20), "glpat-" + fake(letters, 20), "glpat-" + fake(any36, 27) + ".01." + fake(hexes, 9), "gldt-" + fake(any36, 20), "glrt-" + fake(any36, 20), "glptt-" + fake(hexes, 40),
	"npm_" + fake(any36, 36), "pypi-AgEIcHlwaS5vcmc" + fake(any36, 60), "rubygems_" + fake(hexes, 48), "dckr_pat_" + fake(any36, 27), "ATATT3" + fake(any36, 186), "AKCp" + fake(any36, 69),
	"lin_api_" + fake(any36, 40), "ntn_" + fake(any36, 46), "figd_" + fake(any36, 40), "PMAK-" + fake(hexes, 24) + "-" + fake(hexes, 34), "sntrys_" + fake(any36, 60), "pul-" + fake(hexes, 40),
	"AKIA" + fake(capital, 16), "ASIA" + fake(capital, 16), "AIza" + fake(any36, 35), "ya29." + fake(any36, 60), "GOCSPX-" + fake(any36, 28), "LTAI" + fake(any36, 20),
	"dop_v1_" + fake(hexes, 64), "hvs." + fake(any36, 90), "fo1_" + fake(any36, 43), "HRKU-" + fake(any36, 58), "dp.pt." + fake(any36, 43), "glsa_" + fake(any36, 32) + "_" + fake(hexes, 8),
	"NRAK-" + fake(capital, 27), "AGE-SECRET-KEY-1" + fake(capital, 58),
	"xoxb-" + fake("0123456789", 12) + "-" + fake(any36, 24), "xoxp-" + fake("0123456789", 12) + "-" + fake(any36, 24), "xapp-1-" + fake(any36, 40), "hooks.slack.com/services/T" + fake(any36, 44),
	"sk_live_" + fake(any36, 24), "sk_test_" + fake(any36, 24), "rk_live_" + fake(any36, 24), "whsec_" + fake(any36, 32), "sq0csp-" + fake(any36, 43), "shpat_" + fake(hexes, 32), "SG." + fake(any36, 22) + "." + fake(any36, 43), "key-" + fake(hexes, 32),
	"eyJhbGciOi" + fake(any36, 30) + "." + fake(any36, 40) + "." + fake(any36, 40), "eyJ0eXAiOi" + fake(any36, 30) + ".eyJ" + fake(any36, 40) + "." + fake(any36, 40),
	"Bearer " + fake(any36, 32), "Basic " + base64.StdEncoding.EncodeToString([]byte("bob:hunter2")),
	"-----BEGIN RSA PRIV" + "ATE KEY-----\nMIIE\n-----END RSA PRIV" + "ATE KEY-----", "-----BEGIN PGP PRIV" + "ATE KEY BLOCK-----\nlQ\n-----END PGP PRIV" + "ATE KEY BLOCK-----",
	"postgres://app:hunter22@db.example.org/app", "redis://:hunter22@cache:6379/0", "https://bob:s3cr3t!@host/path",
}

// TestEveryFormIsFoundAnywhere: a token is found at the beginning of a text, of
// a line, in quotes and in prose, in JSON and in any other text. After
// redaction it is gone.
func TestEveryFormIsFoundAnywhere(t *testing.T) {
	for _, token := range tokens {
		core := token[strings.LastIndexByte(token[:len(token)-4], ' ')+1:]
		if _, rest, found := strings.Cut(token, "://"); found {
			_, rest, _ = strings.Cut(rest, ":")
			core, _, _ = strings.Cut(rest, "@")
		}
		for _, around := range []string{"%s", "see %s for it", "a\n%s\nb", "x='%s'", "x=\"%s\"", "<%s>", "(%s)", "\t%s", "é%s"} {
			text := fmt.Sprintf(around, token)
			quoted, err := json.Marshal(map[string]any{"out": []string{text}})
			if err != nil {
				t.Fatal(err)
			}
			for _, state := range []struct {
				text string
				json bool
			}{{text, false}, {string(quoted), true}} {
				redacted, found := Scan{}.Redact([]byte(state.text), state.json)
				if len(found) == 0 || strings.Contains(string(redacted), strings.SplitN(core, "\n", 2)[0]) {
					t.Errorf("%q (JSON %v): %v, redacted %q", state.text, state.json, found, redacted)
				}
				if state.json && jsontext.Check(redacted) != nil {
					t.Errorf("redacted it is no JSON: %s", redacted)
				}
				if again := (Scan{}).Find(redacted, state.json); len(again) > 0 {
					t.Errorf("found again in %q: %v", redacted, again)
				}
			}
		}
	}
}

// TestKeys: values under these keys are secrets, however the key is written.
func TestKeys(t *testing.T) {
	for _, key := range strings.Fields("password DB_PASS PGPASSWORD MYSQL_PWD Cookie Set-Cookie token auth bearer access_token apiKey API-KEY X-Api-Key openai_api_key OPENAI_API_KEY AWS_SECRET_ACCESS_KEY client_secret clientSecret " +
		"dbPassword db.password smtp_password Authorization Proxy-Authorization private_key encryption_key SLACK_BOT_TOKEN GITHUB_TOKEN session_token refreshToken webhookSecret credentials jwt accountKey passphrase") {
		value := "a1b2c3d4-canary"
		if strings.HasSuffix(strings.ToLower(key), "cookie") {
			value = "session=a1b2c3d4-canary"
		}
		for _, state := range []struct {
			text string
			json bool
		}{
			{fmt.Sprintf(`{"config":{%q:%q}}`, key, value), true},
			{fmt.Sprintf(`{"out":"{\"x\":1,\"%s\": \"%s\"}"}`, key, value), true},
			{fmt.Sprintf(`{"out":"line\n%s=%s\nline"}`, key, value), true},
			{fmt.Sprintf(`{"out":"line\n%s: %s\nline"}`, key, value), true},
			{fmt.Sprintf("export %s=%s\n", key, value), false},
			{fmt.Sprintf("%s = '%s'\n", key, value), false},
			{fmt.Sprintf("  %s: \"%s\"\n", key, value), false},
			{fmt.Sprintf("%s := `%s`\n", key, value), false},
			{fmt.Sprintf(`{"%s": "%s"}`, key, value), false},
		} {
			redacted, found := Scan{}.Redact([]byte(state.text), state.json)
			if len(found) == 0 || strings.Contains(string(redacted), "canary") {
				t.Errorf("%s (JSON %v): %v, redacted %s", state.text, state.json, found, redacted)
			}
			if state.json && jsontext.Check(redacted) != nil {
				t.Errorf("redacted it is no JSON: %s", redacted)
			}
		}
	}
	if found := (Scan{}).Find([]byte(`{"PASSWORD_2":"hunter22"}`), true); len(found) != 1 {
		t.Errorf("a numbered key: %v", found)
	}
	for _, line := range []string{"PGPASSWORD=correcthorse psql", "DB_PASS=correcthorse", "  password: hunter2\n", "url?token=a1b2c3d4e5&x=1", "Cookie: sid=a1b2c3d4; theme=dark", "Authorization: Basic Ym9iOmh1bnRlcjI="} {
		if found := (Scan{}).Find([]byte(line), false); len(found) == 0 {
			t.Errorf("nothing is found in %q", line)
		}
	}
}

// TestEscapes: a token is found despite JSON escapes in it, before it, and in
// its key, and its whole text is removed.
func TestEscapes(t *testing.T) {
	token := "glpat-" + fake(any36, 20)
	escape := func(text string) string {
		var b strings.Builder
		for _, c := range []byte(text) {
			fmt.Fprintf(&b, `\u%04x`, c)
		}
		return b.String()
	}
	for _, state := range []string{
		`{"a":"` + escape(token) + `"}`, `{"a":"gl\u0070at-` + token[6:] + `"}`, `{"a":"` + token[:20] + escape(token[20:]) + ` end"}`,
		`{"a":"x\u0026` + token + `"}`, `{"a":"x\u003d` + token + `"}`, `{"a":"é\u00e9` + token + `"}`, `{"a":"\/` + token + `"}`, `{"a":"\"` + token + `\""}`, `{"a":"\\n` + token + `"}`,
		`{"` + escape("password") + `":"` + token + `"}`, `{"a":"https:\/\/bob:` + token + `@host\/"}`, `{"a":"p\u0061ssword=` + token + `"}`,
	} {
		redacted, found := Scan{}.Redact([]byte(state), true)
		var v map[string]string
		if err := json.Unmarshal(redacted, &v); err != nil || len(found) == 0 {
			t.Errorf("%s: %v, redacted %s, error %v", state, found, redacted, err)
			continue
		}
		for _, value := range v {
			if strings.Contains(value, token[8:]) {
				t.Errorf("%s is redacted to %s, which still says %s", state, redacted, value)
			}
		}
	}
}

// TestManySecrets: only a limited number is named, but all are removed.
func TestManySecrets(t *testing.T) {
	var list []string
	for i := range 1000 {
		list = append(list, fmt.Sprintf("n%d ghp_%s%04d", i, fake(any36, 32), i))
	}
	state, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, isJSON := range []bool{true, false} {
		redacted, found := Scan{}.Redact(state, isJSON)
		if len(found) != most || strings.Contains(string(redacted), "ghp_") {
			t.Errorf("JSON %v: %d are named, and %d are left", isJSON, len(found), strings.Count(string(redacted), "ghp_"))
		}
	}
}

// TestOrdinaryTextIsSilent: code, logs and documents that only mention secrets
// contain none.
func TestOrdinaryTextIsSilent(t *testing.T) {
	for _, text := range []string{
		"password = getpass.getpass()", "token = request.headers['x']", "api_key=os.environ['KEY']", "password: str = None", "token := r.Token", "secret: ${{ secrets.DEPLOY }}",
		"PASSWORD=$PASSWORD", "PASSWORD=${DB_PASSWORD}", "token = await fetch(url)", "pass=12 fail=0", "auth = HTTPBasicAuth(user, name)", "the password: is not here", "next_page_token=CAESBgoEEgIIAQ11",
		"max_tokens=4096", "https://user:password@host/", "https://host:8080/a@b", "git@github.com:a/b.git", "see http://example.org/x?y=1#z", "Basic authentication is off", "Basic understanding", "Bearer of bad news",
		"sk-learn ask-ant-1 risk-free-investment-strategies", "the token bucket: refill", "auth: required", "Cookie: none", "cookie policy: accept", "secret garden", "pass: bypass", "compass=north22east", "if (token == null) return",
		"password_file=/run/secrets/db", "api_key=<your-key-1234>", "API_KEY=xxxxxxxxxxxx", "key-value store", "dapi", "SG.", "hf_hub_download", "npm_config_registry", "glpat-", "-----BEGIN CERTIFICATE-----",
		"commit 3f786850e387550fdab836ed7e6dc881de23001b", "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", "018f3c2e-7b1a-7c3d-9e4f-5a6b7c8d9e0f", "eyJhbGciOi",
		"var passwordPattern = regexp.MustCompile(x1)", "self.password = self.config.password2", "func (t *Token) Refresh() error", "// token: the n-th token of the input", "type Auth struct { Token string }",
	} {
		quoted, err := json.Marshal(map[string]string{"text": text})
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range []struct {
			text []byte
			json bool
		}{{[]byte(text), false}, {quoted, true}} {
			if found := (Scan{}).Find(state.text, state.json); found != nil {
				t.Errorf("%s (JSON %v): %v", state.text, state.json, found)
			}
		}
	}
	for _, state := range []string{
		`{"next_page_token":"CAESBgoEEgIIAQ11"}`, `{"token":"understanding"}`, `{"auth":"none"}`, `{"auth":{"type":"oauth2"}}`, `{"pass":"all tests passed"}`, `{"password_policy":"at least 12 characters"}`,
		`{"token_type":"bearer"}`, `{"cookie":"chocolate"}`, `{"secret_name":"db"}`, `{"tokens":["a1b2c3d4e5"]}`, `{"author":"a1b2c3d4e5f6"}`, `{"keyboard":"qwerty12345"}`, `{"eos_token":"</s>"}`, `{"bearer":"camel"}`,
	} {
		if found := (Scan{}).Find([]byte(state), true); found != nil {
			t.Errorf("%s: %v", state, found)
		}
	}
}
