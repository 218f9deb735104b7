package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// The formats that versions 1 to 3 of the schema wrote.

// oldHash is the hash of a row of the audit log in versions 1 to 3 of the schema. Its input is a
// JSON array of the fields in the order of the columns, including the hash of the row before. An
// absent field is null.
func oldHash(r *ckpt.AuditRow) string {
	b := AppendOldRow(make([]byte, 0, 512), r)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// AppendOldRow appends an audit row's fields in the order of the columns, without the hash, in the
// form in which json.Marshal writes them.
func AppendOldRow(b []byte, r *ckpt.AuditRow) []byte {
	b = strconv.AppendInt(append(b, '['), r.N, 10)
	b = ledger.AppendTime(append(b, ','), r.At)
	b = ledger.AppendString(append(b, ','), r.Who)
	b = strconv.AppendInt(append(b, ','), int64(r.PID), 10)
	b = ledger.AppendString(append(b, ','), r.Action)
	for _, ref := range [...]ckpt.Ref{r.Owner, r.Agent, r.Run, r.Subject} {
		b = ledger.AppendRef(append(b, ','), ref)
	}
	b = ledger.AppendString(append(b, ','), r.Outcome)
	b = ledger.AppendRef(append(b, ','), r.Reason)
	b = strconv.AppendInt(append(b, ','), int64(r.Retries), 10)
	b = ledger.AppendString(append(b, ','), string(r.Detail))
	b = ledger.AppendString(append(b, ','), r.Prev)
	return append(b, ']')
}

// oldRest is what those versions stored in place of ledger.RestHash.
func oldRest(parent, createdAt, contentType, metadata, step, program string) string {
	return hex.EncodeToString(ledger.RestSum(parent, createdAt, contentType, metadata, step, program))
}
