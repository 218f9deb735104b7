package db

import (
	"context"
	"crypto/subtle"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

const tokenColumns = `id, owner, note, created_at, revoked_at`

// PutToken registers a token. Registering the same token again gives the same answer. It refuses an
// id that another token of this owner has.
func (s *Store) PutToken(_ context.Context, sc ckpt.Scope, r ckpt.TokenRequest) (token *ckpt.Token, made bool, err error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	if sc.Whose() == ckpt.AllOwners {
		return nil, false, ckpt.Errorf(ckpt.CodeInvalid, "a token belongs to one owner: name one, not %s", ckpt.AllOwners)
	}
	e := ledger.Entry(sc, "put_token", "")
	e.Subject, e.Detail = r.ID, map[string]any{"note": r.Note}
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Entry: e, Do: func(tx *ledger.Tx) error {
		token, made = new(ckpt.Token), false
		var hash string
		there, err := tx.Get(token, `SELECT `+tokenColumns+` FROM tokens WHERE owner = ? AND id = ?`, sc.Whose(), r.ID)
		if err == nil && there {
			_, err = tx.Get(&hash, `SELECT hash FROM tokens WHERE owner = ? AND id = ?`, sc.Whose(), r.ID)
		}
		switch {
		case err != nil:
			return err
		case there && hash == r.SHA256:
			return unchanged(tx, sc, e)
		case there:
			return ckpt.Errorf(ckpt.CodeConflict, "another token has the id %s: create a new token", r.ID)
		}
		var live int
		if _, err := tx.Get(&live, `SELECT count(*) FROM tokens WHERE owner = ? AND revoked_at IS NULL`, sc.Whose()); err != nil {
			return err
		}
		if live >= ckpt.MaxTokens {
			return ckpt.Errorf(ckpt.CodeQuota, "%s has %d tokens: revoke one first", sc.Whose(), live)
		}
		made = true
		*token = ckpt.Token{ID: r.ID, Owner: sc.Whose(), Note: r.Note, CreatedAt: tx.Now}
		if err := tx.Insert(`INSERT INTO tokens (id, owner, note, hash, created_at)
			VALUES (?, ?, ?, ?, ?)`, r.ID, token.Owner, r.Note, r.SHA256, tx.Now); err != nil {
			return err
		}
		return tx.Audit(e)
	}})
	if err != nil {
		return nil, false, err
	}
	return token, made, nil
}

// RevokeToken revokes a token at once. The token stays in the list. Repeating the call changes
// nothing.
func (s *Store) RevokeToken(_ context.Context, sc ckpt.Scope, id string) (token *ckpt.Token, err error) {
	if err := ckpt.CheckTokenID(id); err != nil {
		return nil, err
	}
	e := ledger.Entry(sc, "revoke_token", "")
	e.Subject = id
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.Frees, Entry: e, Do: func(tx *ledger.Tx) error {
		token = new(ckpt.Token)
		there, err := tx.Get(token, `SELECT `+tokenColumns+` FROM tokens WHERE owner = ? AND id = ?`, sc.Whose(), id)
		if err != nil {
			return err
		}
		if !there {
			return ckpt.Errorf(ckpt.CodeNotFound, "there is no token %s: list the tokens with ckptsidecar token list", id)
		}
		if !token.RevokedAt.IsZero() {
			return unchanged(tx, sc, e)
		}
		token.RevokedAt = tx.Now
		if err := tx.Exec(`UPDATE tokens SET revoked_at = ? WHERE owner = ? AND id = ?`, tx.Now, sc.Whose(), id); err != nil {
			return err
		}
		return tx.Audit(e)
	}})
	if err != nil {
		return nil, err
	}
	return token, nil
}

// Tokens lists tokens, newest first, always without their hashes.
func (s *Store) Tokens(ctx context.Context, sc ckpt.Scope, f ckpt.TokenFilter) (*ckpt.TokenPage, error) {
	limit, err := ledger.PageSizeOf(f.Limit)
	if err != nil {
		return nil, err
	}
	var before struct {
		At ckpt.Ref `db:"created_at"`
	}
	if f.Before != "" {
		if err := ckpt.CheckTokenID(f.Before); err != nil {
			return nil, err
		}
		if err := s.RO.GetContext(ctx, &before, `SELECT created_at FROM tokens
			WHERE (owner = ?1 OR ?1 = '*') AND id = ?2 LIMIT 1`, sc.Whose(), f.Before); err != nil && !ledger.IsNoRows(err) {
			return nil, sqlite.ReadError(err)
		}
	}
	page := &ckpt.TokenPage{Tokens: []ckpt.Token{}}
	err = s.RO.SelectContext(ctx, &page.Tokens, `SELECT `+tokenColumns+` FROM tokens WHERE (owner = ?1 OR ?1 = '*')
		AND (?2 IS NULL OR (created_at, id) < (?2, ?3)) ORDER BY created_at DESC, id DESC LIMIT 0 + ?4`, sc.Whose(), before.At, f.Before, limit+1)
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	if len(page.Tokens) > limit {
		page.Tokens = page.Tokens[:limit]
		page.Next = ckpt.Ref(page.Tokens[limit-1].ID)
	}
	if sc.Foreign() {
		s.AuditRead(sc, "list_tokens", "", "")
	}
	return page, nil
}

// OwnerOfToken returns the owner that a token names. For an unknown or revoked token, and for any
// other text, the error is denied.
func (s *Store) OwnerOfToken(ctx context.Context, token string) (owner string, err error) {
	denied := ckpt.Errorf(ckpt.CodeDenied, "the token is unknown or was revoked")
	id, sha, ok := ckpt.ParseToken(token)
	if !ok {
		return "", denied
	}
	var rows []struct {
		Owner string    `db:"owner"`
		Hash  string    `db:"hash"`
		Ended ckpt.Time `db:"revoked_at"`
	}
	if err := s.RO.SelectContext(ctx, &rows, `SELECT owner, hash, revoked_at FROM tokens WHERE id = ?`, id); err != nil {
		return "", sqlite.ReadError(err)
	}
	err = denied
	for _, row := range rows { // several rows, because each owner chooses ids on its own
		if subtle.ConstantTimeCompare([]byte(sha), []byte(row.Hash)) == 1 && row.Ended.IsZero() {
			owner, err = row.Owner, nil
		}
	}
	return owner, err
}

// unchanged records that an administrator saw what belongs to another owner.
func unchanged(tx *ledger.Tx, sc ckpt.Scope, e ledger.AuditEntry) error {
	if !sc.Foreign() {
		return nil
	}
	e.Action = "admin_" + e.Action
	return tx.Audit(e)
}
