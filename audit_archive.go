package ckptsidecar

// ArchiveRequest asks the daemon to move the rows of the audit log from before a time into a file: POST /v1/audit/archive.
type ArchiveRequest struct {
	Before Time `json:"before"`
}

// Check refuses an invalid request.
func (r *ArchiveRequest) Check() error {
	if r.Before.IsZero() {
		return Errorf(CodeInvalid, "before is missing: name the time before which rows are archived")
	}
	return nil
}

// AuditArchive is a file with the oldest rows of the audit log, from FromN to ToN. The file can be verified by itself.
type AuditArchive struct {
	FromN  int64  `json:"from_n" db:"from_n"`
	ToN    int64  `json:"to_n" db:"to_n"`
	Hash   string `json:"hash" db:"hash"`     // of row ToN; the next row of the log follows it
	Name   string `json:"name" db:"name"`     // of the file, without its folder
	SHA256 string `json:"sha256" db:"sha256"` // of the file
	Bytes  int64  `json:"bytes" db:"bytes"`   // of the file
}

// AuditArchived is what was archived. Removed is the number of rows that were removed from the database. Rows that are still
// referenced in the database stay. Without rows to archive, all members have their zero values.
type AuditArchived struct {
	AuditArchive
	Folder  string `json:"folder"` // of the file
	Removed int64  `json:"removed"`
}
