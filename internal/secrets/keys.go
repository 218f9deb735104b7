package secrets

import "strings"

// sure is how much a name alone says about its value.
type sure int

const (
	never  sure = iota // it is no secret, whatever the end of the name says
	weak               // it is a secret if it also looks like one
	strong             // it is a secret unless it is a placeholder
)

// name is what a key says about its value.
type name struct {
	kind string
	sure sure
	all  bool // the key has nothing before this name, so any text counts
}

// names are the keys whose values are secrets, without case and punctuation. A key can
// have more words before such a name.
var names = allNames()

func allNames() map[string]name {
	names := map[string]name{}
	for kind, list := range map[string]string{
		"a password": "password passwd pwd pgpassword dbpassword dbpasswd dbpwd dbpass databasepassword " +
			"databasepass userpassword userpass adminpassword adminpass rootpass mysqlpwd mysqlpass pgpass " +
			"postgrespass redispass mongopass smtppass mailpass emailpass ftppass sshpass ldappass proxypass " +
			"loginpass authpass appass rootpassword mysqlpassword postgrespassword redispassword smtppassword",
		"a passphrase":            "passphrase",
		"a secret":                "secret webhooksecret appsecret jwtsecret sharedsecret sessionsecret cookiesecret",
		"a client secret":         "clientsecret consumersecret",
		"a secret key":            "secretkey secretaccesskey awssecretaccesskey accountkey storagekey sharedaccesskey masterkey",
		"an API key":              "apikey xapikey openaiapikey anthropicapikey subscriptionkey",
		"an access key":           "accesskey",
		"an API token":            "apitoken",
		"an API secret":           "apisecret",
		"an access token":         "accesstoken personalaccesstoken",
		"a refresh token":         "refreshtoken",
		"a token":                 "authtoken bearertoken idtoken githubtoken gitlabtoken bottoken oauthtoken securitytoken",
		"a session token":         "sessiontoken",
		privateKey:                "privatekey sshkey sshprivatekey deploykey",
		"an authorization header": "authorization proxyauthorization",
		"a cookie":                "setcookie",
		"an encryption key":       "encryptionkey",
		"a signing key":           "signingkey",
		"a signature for access":  "sharedaccesssignature",
	} {
		for _, n := range strings.Fields(list) {
			names[n] = name{kind: kind, sure: strong}
		}
	}
	for kind, list := range map[string]string{
		"a token":       "token jwt pat bearer",
		"a password":    "pass",
		"credentials":   "auth credential credentials creds",
		"a cookie":      "cookie cookies",
		"a session key": "sessionid sessionkey sessid",
	} {
		for _, n := range strings.Fields(list) {
			names[n] = name{kind: kind, sure: weak}
		}
	}
	for _, n := range strings.Fields("pagetoken nexttoken prevtoken previoustoken continuationtoken continuetoken " +
		"cursortoken synctoken starttoken endtoken " +
		"canceltoken cancellationtoken stoptoken eostoken bostoken padtoken unktoken masktoken septoken clstoken " +
		"specialtoken firsttoken lasttoken inputtoken " +
		"outputtoken prompttoken pertoken bytoken changetoken resumetoken skiptoken deltatoken publickeytoken bypass " +
		"compass firstpass lastpass singlepass") {
		names[n] = name{sure: never}
	}
	return names
}

// endings has a bit for each three letters with which a name ends. Most keys end with
// other letters.
var endings = func() (bits [1 << 15 / 64]uint64) {
	for n := range names {
		i := triple(n[len(n)-3], n[len(n)-2], n[len(n)-1])
		bits[i>>6] |= 1 << (i & 63)
	}
	return bits
}()

func triple(a, b, c byte) uint { return uint(a&31)<<10 | uint(b&31)<<5 | uint(c&31) }

const (
	longestKey = 48 // a longer key does not name a secret
	replaced   = "[redacted]"
)

// secretName returns what the value under a key is, the zero name for nothing.
func secretName(key []byte) name {
	for len(key) > 0 && (key[len(key)-1] >= '0' && key[len(key)-1] <= '9' || isPunctuation(key[len(key)-1])) { // PASSWORD_2
		key = key[:len(key)-1]
	}
	n := len(key)
	if n < 3 || n > longestKey {
		return name{}
	}
	if i := triple(key[n-3], key[n-2], key[n-1]); endings[i>>6]>>(i&63)&1 == 0 {
		return name{}
	}
	return longestName(key)
}

// longestName looks up a key beginning at each of its words.
func longestName(key []byte) name {
	var plain [longestKey]byte
	var begins uint64 // a bit for each place in plain where a word begins
	n, next, capitals := 0, true, true
	before := byte('a')
	for _, c := range key {
		if isPunctuation(c) {
			next = true
			continue
		}
		capital := c >= 'A' && c <= 'Z'
		if next || capital && !(before >= 'A' && before <= 'Z') {
			begins |= 1 << n
		}
		before, next = c, false
		if capital {
			c += 'a' - 'A'
		} else if c >= 'a' && c <= 'z' {
			capitals = false
		}
		plain[n] = c
		n++
	}
	for i := range n {
		if begins>>i&1 == 0 {
			continue
		}
		found, known := names[string(plain[i:n])]
		switch {
		case !known:
			continue
		case found.sure == never:
			return name{}
		}
		found.all = i == 0
		if found.sure == weak && capitals && i > 0 { // DB_TOKEN is an environment variable
			found.sure = strong
		}
		return found
	}
	return name{}
}

func isPunctuation(c byte) bool { return c == '_' || c == '-' || c == '.' || c == ' ' }

// placeholders are beginnings of values that stand for a secret but are none.
var placeholders = []string{
	replaced, "redacted", "xxxx", "****", "...", "<", "${", "{{", "$(", "%", "your", "example", "changeme", "none", "null", "true", "false",
	"env:", "env.", "os.environ", "os.getenv", "process.env", "secrets.", "vault:", "sops:", "file:", "undefined", "placeholder", "dummy",
}

// isSecret reports whether a value under this name is a secret.
func (n *name) isSecret(value []byte) bool {
	if len(value) < 6 || isPlaceholder(value) {
		return false
	}
	if n.sure == strong && n.all {
		return true
	}
	if scheme := len(schemeOf(value)); scheme > 0 {
		value = value[scheme:]
	}
	if n.kind == names["cookie"].kind {
		return hasPair(value)
	}
	for _, c := range value {
		if c <= ' ' {
			return false
		}
	}
	return !isPath(value) && (n.sure == strong || looksMade(value))
}

func isPlaceholder(value []byte) bool {
	low := strings.ToLower(string(value[:min(len(value), 16)]))
	for _, p := range placeholders {
		if strings.HasPrefix(low, p) {
			return true
		}
	}
	return isReference(value) || !differs(value)
}

// isReference reports whether a value is a reference to a variable, such as $PASSWORD.
func isReference(value []byte) bool {
	if value[0] != '$' {
		return false
	}
	for _, c := range value[1:] {
		if !word(c) || c >= '0' && c <= '9' {
			return false
		}
	}
	return true
}

// differs reports whether a value is more than one repeated character.
func differs(value []byte) bool {
	for _, c := range value {
		if c != value[0] {
			return true
		}
	}
	return false
}

// looksMade reports whether a value was made by a machine or for one, and is not a word
// of a language or of a program.
func looksMade(value []byte) bool {
	lower, upper, other := false, false, false
	for _, c := range value {
		lower = lower || c >= 'a' && c <= 'z'
		upper = upper || c >= 'A' && c <= 'Z'
		other = other || c < '0' || c > 'z' || c > '9' && c < 'A'
	}
	return len(value) >= 8 && mixed(value) || len(value) >= 16 && (lower && upper || other || varied(value))
}

// isPath reports whether a value is a path or a URL and not a secret.
func isPath(value []byte) bool {
	return value[0] == '/' || len(value) > 1 && value[0] == '.' && (value[1] == '/' || value[1] == '.') ||
		strings.HasPrefix(string(value[:min(8, len(value))]), "http")
}

// hasPair reports whether a value contains a name and a value, as cookies do.
func hasPair(value []byte) bool {
	for i, c := range value {
		if c == '=' {
			return i > 0 && len(value)-i > 4
		}
	}
	return looksMade(value)
}

// schemeOf returns the word before the secret in an authorization header.
func schemeOf(value []byte) string {
	for _, scheme := range [...]string{"Bearer ", "Basic ", "Token ", "Digest ", "bearer ", "basic ", "token "} {
		if len(value) > len(scheme) && string(value[:len(scheme)]) == scheme {
			return scheme
		}
	}
	return ""
}
