package ckptsidecar

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Token identifies an owner where the kernel cannot: at the loopback port that receives
// OpenTelemetry spans. It has no other use. The daemon never has the token itself. The client that
// creates a token sends the daemon a hash of the secret part.
type Token struct {
	ID        string `json:"id" db:"id"`
	Owner     string `json:"owner" db:"owner"`
	Note      string `json:"note" db:"note"`
	CreatedAt Time   `json:"created_at" db:"created_at"`
	RevokedAt Time   `json:"revoked_at" db:"revoked_at"`
}

// TokenRequest registers a token. Sending the same request again changes nothing.
type TokenRequest struct {
	ID     string `json:"-"`
	SHA256 string `json:"sha256"`         // of the secret part
	Note   string `json:"note,omitempty"` // for people: the purpose of the token
}

// TokenPage is one page of tokens, newest first.
type TokenPage struct {
	Tokens []Token `json:"tokens"`
	Next   Ref     `json:"next"`
}

// TokenFilter chooses a page of tokens.
type TokenFilter struct {
	Before string
	Limit  int
}

// MaxTokens is the maximum number of live tokens of an owner.
const MaxTokens = 100

// The parts of a token: a prefix by which secret scanners recognize it, an id, and a secret of 256
// bits.
const (
	tokenWord   = "ckpt"
	tokenID     = 16
	tokenSecret = 64
)

// NewToken creates a token, and the request that registers it.
func NewToken(note string) (token string, r TokenRequest) {
	var id [tokenID / 2]byte
	var secret [tokenSecret / 2]byte
	_, _ = rand.Read(id[:]) // it never fails
	_, _ = rand.Read(secret[:])
	text := hex.EncodeToString(secret[:])
	r = TokenRequest{ID: hex.EncodeToString(id[:]), SHA256: hashText(text), Note: note}
	return tokenWord + "-" + r.ID + "-" + text, r
}

// ParseToken splits a token into its parts. ok is false for any other text.
func ParseToken(token string) (id, sha string, ok bool) {
	parts := strings.Split(token, "-")
	if len(parts) != 3 || parts[0] != tokenWord || !isHex(parts[1], tokenID) || !isHex(parts[2], tokenSecret) {
		return "", "", false
	}
	return parts[1], hashText(parts[2]), true
}

func hashText(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func isHex(s string, length int) bool {
	return len(s) == length && strings.Trim(s, "0123456789abcdef") == ""
}

// CheckTokenID accepts the id of a token.
func CheckTokenID(id string) error {
	if !isHex(id, tokenID) {
		return Errorf(CodeInvalid, "%q is not the id of a token: an id has %d hexadecimal digits", cut(id), tokenID)
	}
	return nil
}

// Check refuses an invalid request.
func (r *TokenRequest) Check() error {
	if err := CheckTokenID(r.ID); err != nil {
		return err
	}
	if !isHex(r.SHA256, 64) {
		return Errorf(CodeInvalid, "sha256 is not a hash: send the SHA-256 of the token's secret part in hexadecimal digits")
	}
	if len(r.Note) > MaxLabelValue {
		return Errorf(CodeInvalid, "the note is %d bytes long: at most %d are allowed", len(r.Note), MaxLabelValue)
	}
	return checkText("note", r.Note)
}
