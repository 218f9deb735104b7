package secrets

import (
	"bytes"
	"encoding/base64"
	"slices"
)

// rule is a kind of secret that is recognized by its form: a mark, followed by bytes of
// a certain class.
type rule struct {
	mark  string
	kind  string
	least int             // at least so many bytes of the class must follow the mark
	most  int             // at most so many may follow, 0 for any number
	more  func(byte) bool // reports whether a byte is in the class
	looks func(token []byte) bool
	until string // used instead of the class: the secret extends to the end of this text
	bare  bool   // the mark itself is not part of the secret
}

// rules are the tokens that are worth a warning. Their forms follow the documentation
// of the issuers. Each mark is rare in ordinary text and code.
var rules = []rule{
	// models and services that host them
	{mark: "sk-ant-", kind: "an Anthropic API key", least: 20, more: word, looks: mixed},
	{mark: "sk-proj-", kind: "an OpenAI API key", least: 20, more: word, looks: mixed},
	{mark: "sk-svcacct-", kind: "an OpenAI API key", least: 20, more: word, looks: mixed},
	{mark: "sk-admin-", kind: "an OpenAI API key", least: 20, more: word, looks: mixed},
	{mark: "sk-or-v1-", kind: "an OpenRouter API key", least: 32, more: alphanumeric, looks: mixed},
	{mark: "sk-", kind: "an API key", least: 32, more: alphanumeric, looks: mixed},
	{mark: "hf_", kind: "a Hugging Face token", least: 30, more: alphanumeric, looks: made},
	{mark: "api_org_", kind: "a Hugging Face token", least: 30, more: alphanumeric, looks: made},
	{mark: "gsk_", kind: "a Groq API key", least: 40, more: alphanumeric, looks: mixed},
	{mark: "xai-", kind: "an xAI API key", least: 60, more: alphanumeric, looks: mixed},
	{mark: "pplx-", kind: "a Perplexity API key", least: 40, more: alphanumeric, looks: mixed},
	{mark: "r8_", kind: "a Replicate API token", least: 36, more: alphanumeric, looks: mixed},
	{mark: "nvapi-", kind: "an NVIDIA API key", least: 40, more: word, looks: mixed},
	{mark: "dapi", kind: "a Databricks token", least: 32, most: 34, more: hexadecimal, looks: mixed},

	// code and packages
	{mark: "ghp_", kind: "a GitHub token", least: 30, more: alphanumeric, looks: made},
	{mark: "gho_", kind: "a GitHub token", least: 30, more: alphanumeric, looks: made},
	{mark: "ghu_", kind: "a GitHub token", least: 30, more: alphanumeric, looks: made},
	{mark: "ghs_", kind: "a GitHub token", least: 30, more: alphanumeric, looks: made},
	{mark: "ghr_", kind: "a GitHub token", least: 30, more: alphanumeric, looks: made},
	{mark: "github_pat_", kind: "a GitHub token", least: 30, more: word, looks: made},
	{mark: "glpat-", kind: "a GitLab token", least: 20, more: jwt, looks: made},
	{mark: "gldt-", kind: "a GitLab token", least: 20, more: word, looks: made},
	{mark: "glrt-", kind: "a GitLab token", least: 20, more: jwt, looks: made},
	{mark: "glptt-", kind: "a GitLab token", least: 20, more: word, looks: made},
	{mark: "glcbt-", kind: "a GitLab token", least: 20, more: word, looks: made},
	{mark: "glft-", kind: "a GitLab token", least: 20, more: word, looks: made},
	{mark: "glsoat-", kind: "a GitLab token", least: 20, more: word, looks: made},
	{mark: "glagent-", kind: "a GitLab token", least: 20, more: word, looks: made},
	{mark: "glimt-", kind: "a GitLab token", least: 20, more: word, looks: made},
	{mark: "gloas-", kind: "a GitLab secret", least: 20, more: word, looks: made},
	{mark: "npm_", kind: "an npm token", least: 36, more: alphanumeric, looks: made},
	{mark: "pypi-AgEIcHlwaS5vcmc", kind: "a PyPI token", least: 50, more: word},
	{mark: "rubygems_", kind: "a RubyGems key", least: 48, more: hexadecimal, looks: mixed},
	{mark: "dckr_pat_", kind: "a Docker token", least: 20, more: word, looks: made},
	{mark: "dckr_oat_", kind: "a Docker token", least: 20, more: word, looks: made},
	{mark: "ATATT3", kind: "an Atlassian token", least: 40, more: bearer, looks: mixed},
	{mark: "AKCp", kind: "an Artifactory key", least: 60, more: alphanumeric, looks: mixed},
	{mark: "lin_api_", kind: "a Linear API key", least: 40, more: alphanumeric, looks: mixed},
	{mark: "ntn_", kind: "a Notion token", least: 40, more: alphanumeric, looks: mixed},
	{mark: "figd_", kind: "a Figma token", least: 36, more: word, looks: mixed},
	{mark: "PMAK-", kind: "a Postman API key", least: 50, more: word, looks: mixed},
	{mark: "sntrys_", kind: "a Sentry token", least: 40, more: bearer, looks: mixed},
	{mark: "sntryu_", kind: "a Sentry token", least: 60, more: hexadecimal, looks: mixed},
	{mark: "pul-", kind: "a Pulumi token", least: 40, most: 40, more: hexadecimal, looks: mixed},

	// clouds and infrastructure
	{mark: "AKIA", kind: "an AWS access key id", least: 16, more: upper, looks: mixed},
	{mark: "ASIA", kind: "an AWS access key id", least: 16, more: upper, looks: mixed},
	{mark: "ABIA", kind: "an AWS access key id", least: 16, more: upper, looks: mixed},
	{mark: "ACCA", kind: "an AWS access key id", least: 16, more: upper, looks: mixed},
	{mark: "ABSK", kind: "an AWS Bedrock key", least: 100, more: bearer, looks: mixed},
	{mark: "AIza", kind: "a Google API key", least: 35, more: word, looks: mixed},
	{mark: "ya29.", kind: "a Google access token", least: 30, more: word, looks: mixed},
	{mark: "GOCSPX-", kind: "a Google client secret", least: 20, more: word, looks: made},
	{mark: "LTAI", kind: "an Alibaba access key id", least: 20, most: 26, more: alphanumeric, looks: mixed},
	{mark: "dop_v1_", kind: "a DigitalOcean token", least: 60, more: hexadecimal, looks: mixed},
	{mark: "doo_v1_", kind: "a DigitalOcean token", least: 60, more: hexadecimal, looks: mixed},
	{mark: "dor_v1_", kind: "a DigitalOcean token", least: 60, more: hexadecimal, looks: mixed},
	{mark: "hvs.", kind: "a Vault token", least: 24, more: word, looks: mixed},
	{mark: "hvb.", kind: "a Vault token", least: 100, more: word, looks: mixed},
	{mark: "fo1_", kind: "a Fly.io token", least: 40, more: word, looks: mixed},
	{mark: "FlyV1 fm", kind: "a Fly.io token", least: 40, more: bearer, looks: mixed},
	{mark: "HRKU-", kind: "a Heroku key", least: 36, more: word, looks: mixed},
	{mark: "dp.pt.", kind: "a Doppler token", least: 40, more: alphanumeric, looks: mixed},
	{mark: "glsa_", kind: "a Grafana token", least: 36, more: word, looks: mixed},
	{mark: "glc_", kind: "a Grafana token", least: 36, more: bearer, looks: mixed},
	{mark: "NRAK-", kind: "a New Relic key", least: 27, more: upper, looks: mixed},
	{mark: "ops_eyJ", kind: "a 1Password token", least: 100, more: bearer},
	{mark: "AGE-SECRET-KEY-1", kind: privateKey, least: 58, more: upper},

	// messages, money, shops
	{mark: "xoxb-", kind: "a Slack token", least: 20, more: word, looks: mixed},
	{mark: "xoxp-", kind: "a Slack token", least: 20, more: word, looks: mixed},
	{mark: "xoxa-", kind: "a Slack token", least: 20, more: word, looks: mixed},
	{mark: "xoxr-", kind: "a Slack token", least: 20, more: word, looks: mixed},
	{mark: "xoxs-", kind: "a Slack token", least: 20, more: word, looks: mixed},
	{mark: "xoxe.", kind: "a Slack token", least: 40, more: jwt, looks: mixed},
	{mark: "xoxe-", kind: "a Slack token", least: 40, more: word, looks: mixed},
	{mark: "xapp-", kind: "a Slack token", least: 20, more: word, looks: mixed},
	{mark: "hooks.slack.com/services/", kind: "a Slack webhook", least: 40, more: bearer, looks: mixed},
	{mark: "sk_live_", kind: "a Stripe key", least: 10, more: alphanumeric, looks: made},
	{mark: "sk_test_", kind: "a Stripe key", least: 10, more: alphanumeric, looks: made},
	{mark: "rk_live_", kind: "a Stripe key", least: 10, more: alphanumeric, looks: made},
	{mark: "rk_test_", kind: "a Stripe key", least: 10, more: alphanumeric, looks: made},
	{mark: "whsec_", kind: "a webhook secret", least: 24, more: bearer, looks: made},
	{mark: "sq0csp-", kind: "a Square secret", least: 40, more: word, looks: mixed},
	{mark: "sq0atp-", kind: "a Square token", least: 20, more: word, looks: mixed},
	{mark: "shpat_", kind: "a Shopify token", least: 32, more: hexadecimal, looks: mixed},
	{mark: "shpca_", kind: "a Shopify token", least: 32, more: hexadecimal, looks: mixed},
	{mark: "shppa_", kind: "a Shopify token", least: 32, more: hexadecimal, looks: mixed},
	{mark: "shpss_", kind: "a Shopify secret", least: 32, more: hexadecimal, looks: mixed},
	{mark: "SG.", kind: "a SendGrid API key", least: 60, more: jwt, looks: mixed},
	{mark: "key-", kind: "a Mailgun API key", least: 32, most: 32, more: hexadecimal, looks: mixed},

	// forms that many issuers share
	{mark: "eyJhbGciOi", kind: "a JSON Web Token", least: 30, more: jwt, looks: mixed},
	{mark: "eyJ", kind: "a JSON Web Token", least: 40, more: jwt, looks: isJWT},
	{mark: "Bearer ", kind: "a bearer token", least: 20, more: bearer, looks: mixed},
	{mark: "Basic ", kind: "a password of basic authentication", least: 6, more: bearer, looks: isBasic, bare: true},
	{mark: "-----BEGIN ", kind: privateKey, until: "PRIVATE KEY-----"},
	{mark: "-----BEGIN PGP ", kind: privateKey, until: "PRIVATE KEY BLOCK-----"},
}

const privateKey = "a private key"

func hexadecimal(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

func upper(c byte) bool        { return c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
func alphanumeric(c byte) bool { return upper(c) || c >= 'a' && c <= 'z' }
func word(c byte) bool         { return alphanumeric(c) || c == '-' || c == '_' }
func jwt(c byte) bool          { return word(c) || c == '.' }
func bearer(c byte) bool       { return jwt(c) || c == '+' || c == '/' || c == '~' || c == '=' }

const (
	telling = 128      // how many bytes of a token are checked to decide whether it is one
	maxKey  = 16 << 10 // the most bytes of a private key as text
	keyHead = 40       // how many bytes after the mark are checked to decide whether it is a key
)

// tokenAt returns the token of a rule that begins at a place.
func (r *rule) tokenAt(text []byte, from int, json bool) (hit, bool) {
	if from < 0 || len(text)-from < len(r.mark) || string(text[from:from+len(r.mark)]) != r.mark || !beginsWord(text, from, json) {
		return hit{}, false
	}
	to := r.end(text, from, json)
	if r.bare {
		from += len(r.mark)
	}
	return hit{from: from, to: to, kind: r.kind}, to > 0
}

// end returns the end of the token that begins at from, 0 if there is none.
func (r *rule) end(text []byte, from int, json bool) int {
	rest := from + len(r.mark)
	if r.until != "" {
		if text = text[:min(rest+maxKey, len(text))]; json {
			text = text[:endOfString(text, rest)]
		}
		return r.endOfKey(text, rest)
	}
	to := r.run(text, rest, min(rest+telling, len(text)))
	if n := to - rest; n < r.least || r.looks != nil && !r.looks(text[rest:to]) {
		return 0
	}
	to = r.run(text, to, len(text))
	if r.most > 0 && to-rest > r.most {
		return 0
	}
	return to
}

// run returns the end of the token's bytes that begin at a place.
func (r *rule) run(text []byte, from, limit int) int {
	for from < limit && r.more(text[from]) {
		from++
	}
	return from
}

// endOfKey is for PEM: the kind of key is between the mark and until, and the block
// extends to its last line.
func (r *rule) endOfKey(text []byte, rest int) int {
	head := text[rest:min(rest+keyHead, len(text))]
	i := bytes.Index(head, []byte(r.until))
	if i < 0 {
		return 0
	}
	if j := bytes.Index(text[rest:], []byte("-----END ")); j > 0 {
		if k := bytes.Index(text[rest+j:], []byte(r.until)); k >= 0 {
			return rest + j + k + len(r.until)
		}
	}
	return rest + i + len(r.until)
}

// mixed reports whether a token has digits and letters, as most have. A repeated
// character or a placeholder of letters only does not.
func mixed(token []byte) bool {
	digit, letter := false, false
	for _, c := range token {
		digit = digit || c >= '0' && c <= '9'
		letter = letter || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
	}
	return digit && letter
}

// made reports whether a token is not a placeholder. It is for marks that nothing else
// has, and whose tokens can consist of letters only.
func made(token []byte) bool { return mixed(token) || varied(token) }

// varied reports whether a text has many different characters.
func varied(token []byte) bool {
	var seen [256]bool
	n := 0
	for _, c := range token {
		if !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n >= min(8, (len(token)+1)/2)
}

// isJWT reports whether the bytes after eyJ have a second part that is JSON too.
func isJWT(token []byte) bool {
	for i := range token {
		if token[i] == '.' {
			return i >= 10 && len(token)-i > 20 && string(token[i:i+4]) == ".eyJ"
		}
	}
	return false
}

// isBasic reports whether the bytes are a user and a password in base64.
func isBasic(token []byte) bool {
	for len(token) > 0 && token[len(token)-1] == '=' {
		token = token[:len(token)-1]
	}
	plain := make([]byte, base64.RawStdEncoding.DecodedLen(len(token)))
	n, err := base64.RawStdEncoding.Decode(plain, token)
	plain = plain[:n]
	return (err == nil || n >= telling/2) && slices.Contains(plain, ':') && !slices.ContainsFunc(plain, func(c byte) bool { return c < ' ' })
}
