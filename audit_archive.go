package ckptsidecar

// AuditArchive names a file with the oldest rows of the audit log, from FromN to ToN, and records
// what was archived: POST /v1/audit/archive. The file can be verified by itself.
type AuditArchive struct {
	FromN  int64  `json:"from_n" db:"from_n"`
	ToN    int64  `json:"to_n" db:"to_n"`
	Hash   string `json:"hash" db:"hash"`     // of row ToN; the next row of the log follows it
	Name   string `json:"name" db:"name"`     // of the file, without its folder
	SHA256 string `json:"sha256" db:"sha256"` // of the file
	Bytes  int64  `json:"bytes" db:"bytes"`   // of the file
}

// AuditArchived is the answer to an AuditArchive. Removed is the number of rows that were removed
// from the database. Rows that are still referenced in the database stay.
type AuditArchived struct {
	AuditArchive
	Removed int64 `json:"removed"`
}

// Check refuses an invalid request.
func (r *AuditArchive) Check() error {
	switch {
	case r.FromN < 1 || r.ToN < r.FromN:
		return Errorf(CodeInvalid, "from_n is %d and to_n is %d: from_n must be at least 1, and to_n at least from_n", r.FromN, r.ToN)
	case r.Name == "" || len(r.Name) > MaxKey:
		return Errorf(CodeInvalid, "name is missing or longer than %d bytes", MaxKey)
	case r.Bytes < 1:
		return Errorf(CodeInvalid, "bytes is %d: it must be at least 1", r.Bytes)
	}
	if err := CheckSHA256("hash of the last row", r.Hash); err != nil {
		return err
	}
	return CheckSHA256("hash of the file", r.SHA256)
}
