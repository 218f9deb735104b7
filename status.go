package ckptsidecar

// Status is what a daemon reports about itself. It counts the caller's own agents; for an
// administrator, it counts all agents.
type Status struct {
	Version   string         `json:"version"`
	PID       int            `json:"pid"`
	StartedAt Time           `json:"started_at"`
	Now       Time           `json:"now"`
	State     string         `json:"state"`    // ready, degraded, read_only or failed
	Problems  []string       `json:"problems"` // each is a sentence that also says what to do
	Endpoint  string         `json:"endpoint"`
	Agents    int64          `json:"agents"`
	Runs      int64          `json:"runs"`
	Waiting   WaitingStatus  `json:"waiting"`
	Counts    map[Kind]int64 `json:"checkpoints"`
	Stored    int64          `json:"stored_bytes"` // of the states of checkpoints
	Files     int64          `json:"files_bytes"`  // of the contents of files
	LeftOut   int64          `json:"left_out"`     // paths that the newest trees of all folders leave out
	Database  DatabaseStatus `json:"database"`
	Disk      DiskStatus     `json:"disk"`
	Quotas    []QuotaStatus  `json:"quotas"` // of the caller; for an administrator, of the users who store most; empty without a limit
	Writer    WriterStatus   `json:"writer"`
	Worker    WorkerStatus   `json:"retention"`
	Drift     DriftStatus    `json:"drift"`
	Backup    BackupStatus   `json:"backup"`
	OTLP      OTLPStatus     `json:"otlp"`
	Notify    NotifyStatus   `json:"notify"`
}

// WaitingStatus counts runs by status, and what waits for a person.
type WaitingStatus struct {
	RunsByStatus        map[RunStatus]int64 `json:"runs_by_status"`
	UncertainOperations int64               `json:"uncertain_operations"`
	OpenPrompts         int64               `json:"open_prompts"`
}

// OTLPStatus is the status of receiving OpenTelemetry spans.
type OTLPStatus struct {
	Enabled  bool       `json:"enabled"`
	Socket   string     `json:"socket"`   // "" if there is none
	Loopback string     `json:"loopback"` // the address of the port, "" if there is none
	Content  string     `json:"content"`
	Spans    SpanCounts `json:"spans"`
	Closed   int64      `json:"closed_connections"` // since the start: above a limit, or without a token in time
}

// SpanCounts counts what happened to spans since the daemon started.
type SpanCounts struct {
	Step      int64 `json:"step"`
	Usage     int64 `json:"usage"`
	Ignored   int64 `json:"ignored"`
	Duplicate int64 `json:"duplicate"`
	Late      int64 `json:"late"`
	Refused   int64 `json:"refused"`
}

// DatabaseStatus describes the database file and its write-ahead log.
type DatabaseStatus struct {
	Path              string `json:"path"`
	ID                string `json:"id"`
	SchemaVersion     int    `json:"schema_version"`
	SQLite            string `json:"sqlite"`
	Bytes             int64  `json:"bytes"`
	MaxBytes          int64  `json:"max_bytes"` // 0 for no limit
	FreeBytes         int64  `json:"free_bytes"`
	WALBytes          int64  `json:"wal_bytes"`
	WALPending        int64  `json:"wal_pending_bytes"` // not yet copied into the file
	LastWALCheckpoint Time   `json:"last_wal_checkpoint"`
	WALFailures       int64  `json:"wal_checkpoint_failures"` // in a row
	AuditRows         int64  `json:"audit_rows"`
	AuditHead         string `json:"audit_head"`
	Damaged           int64  `json:"damaged_checkpoints"` // known to be damaged, and never served
}

// DiskStatus is the space that is left for all users, on the disk and below limits.max_database.
type DiskStatus struct {
	FreeBytes  int64 `json:"free_bytes"`  // below 0 if it is not known, or if limits.free_floor is 0
	FloorBytes int64 `json:"floor_bytes"` // limits.free_floor, at most a tenth of the disk
}

// MaxQuotas is how many users Status.Quotas has at most.
const MaxQuotas = 100

// QuotaStatus is what one user stores, as it counts for limits.owner_bytes and limits.free_floor.
type QuotaStatus struct {
	Owner    string `json:"owner"`
	Bytes    int64  `json:"bytes"`
	MaxBytes int64  `json:"max_bytes"` // 0 for no limit
}

// Hidden reports whether the numbers of the whole daemon are left out, because the caller is not an
// administrator: the sizes here, the rows of the audit log, WriterStatus, and the watched runs. A database is never empty.
func (d *DatabaseStatus) Hidden() bool { return d.Bytes == 0 }

// WriterStatus is the status of the writer.
type WriterStatus struct {
	Commits    int64   `json:"commits"`
	Operations int64   `json:"operations"`
	Retries    int64   `json:"retries"`
	Failures   int64   `json:"failures"`
	Waiting    int     `json:"waiting"`
	CommitP50  float64 `json:"commit_p50_ms"` // of the last commits
	CommitP99  float64 `json:"commit_p99_ms"`
}

// WorkerStatus is the status of the retention worker.
type WorkerStatus struct {
	LastRun      Time   `json:"last_run"`
	Removed      int64  `json:"removed"`       // checkpoints removed by age or budget since the start; not those that saves and prunes removed
	GuardedUntil Time   `json:"guarded_until"` // no checkpoint is removed by age before this time
	LastError    string `json:"last_error"`
}

// BackupStatus is the status of scheduled backups. Only administrators see it.
type BackupStatus struct {
	Interval  Duration `json:"interval"` // 0s for none
	Folder    string   `json:"folder"`
	Kept      int      `json:"kept"` // the number of stored backups
	Last      Time     `json:"last"` // the time of the newest backup
	LastBytes int64    `json:"last_bytes"`
	LastError string   `json:"last_error"` // "" if the last one succeeded

	AfterError    string   `json:"after_error"`    // of the program backup.after, "" if it took the newest backup, or there is none
	DrillInterval Duration `json:"drill_interval"` // 0s for none
	DrillLast     Time     `json:"drill_last"`     // when a backup was last restored and verified on trial
	DrillError    string   `json:"drill_error"`    // "" if that succeeded
}
