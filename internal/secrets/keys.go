package secrets

import "strings"

// names are the keys whose values are secrets by their name, without case and
// punctuation.
var names = map[string]string{
	"password": "a password", "passwd": "a password", "passphrase": "a passphrase", "pwd": "a password",
	"secret": "a secret", "clientsecret": "a client secret", "secretkey": "a secret key", "secretaccesskey": "a secret key",
	"awssecretaccesskey": "a secret key", "apikey": "an API key", "xapikey": "an API key", "apitoken": "an API token", "apisecret": "an API secret",
	"accesstoken": "an access token", "refreshtoken": "a refresh token", "authtoken": "a token", "bearertoken": "a token", "sessiontoken": "a session token",
	"idtoken": "a token", "privatekey": privateKey, "authorization": "an authorization header", "proxyauthorization": "an authorization header",
	"setcookie": "a cookie", "dbpassword": "a password", "databasepassword": "a password", "encryptionkey": "an encryption key", "signingkey": "a signing key",
	"openaiapikey": "an API key", "anthropicapikey": "an API key", "githubtoken": "a token", "webhooksecret": "a secret",
}

// longest is the length of the longest name with room for its punctuation.
const longest = 32

// placeholders are values that stand for a secret and are none.
var placeholders = []string{replacement, "redacted", "xxxx", "****", "<", "${", "{{", "%", "your", "example", "changeme", "none", "null", "true", "false", "env:", "os.environ", "process.env"}

// secretName answers what a value under this key is, "" for nothing.
func secretName(key []byte) string {
	if len(key) > longest || len(key) < 3 {
		return ""
	}
	var plain [longest]byte
	n := 0
	for _, c := range key {
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c == '_' || c == '-' || c == '.' || c == ' ':
			continue
		}
		plain[n] = c
		n++
	}
	if n == 0 || lengths[plain[0]]&(1<<n) == 0 {
		return ""
	}
	return names[string(plain[:n])]
}

// lengths has for each byte with which a name may begin a bit for each length
// that such a name may have. Most keys have none.
var lengths = func() (bits [256]uint64) {
	for name := range names {
		bits[name[0]] |= 1 << len(name)
	}
	return bits
}()

// realValue says whether a value is more than a placeholder.
func realValue(value []byte) bool {
	if len(value) < 6 {
		return false
	}
	low := strings.ToLower(string(value[:min(len(value), 64)]))
	for _, p := range placeholders {
		if strings.HasPrefix(low, p) {
			return false
		}
	}
	return true
}
