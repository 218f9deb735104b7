package fleet

// Mark is the last row of a host's audit log that the engine has, and that row's hash. The engine
// has everything that the host committed up to it.
type Mark struct {
	N    int64  `json:"n"`
	Hash string `json:"hash"`
}

// Limits limit a batch.
type Limits struct {
	Rows  int   // of the audit log
	Bytes int64 // of the whole batch; a run is never split, so a large run can exceed it
}

// Changes are what one host committed after a mark, read in one snapshot. Each run in it is exactly
// as it was at that moment.
type Changes struct {
	From, To Mark
	Head     int64 // the newest row of the audit log at that moment
	Since    int64 // when the oldest row of the batch was written, in milliseconds since 1970; 0 for none
	Journal  []JournalRow
	Erased   []Erasure
	Agents   []Agent
	Names    []Name // of the agents and runs that the rows name, with the uids that they have now
	Runs     []Run
	Size     int64
}

// Empty reports that nothing has changed.
func (c *Changes) Empty() bool { return c.To == c.From }

// JournalRow is a row of the audit log. Texts holds the texts that an erasure removes from it.
type JournalRow struct {
	N       int64
	At      int64 // milliseconds since 1970
	Who     string
	Action  string
	Owner   string
	Agent   string
	Run     string
	Outcome string
	Doc     string
	Texts   *string
	Hash    string
	KeyID   string // the key that Texts is sealed with, "" for a text in the clear; the same in the types below
}

// Erasure is an agent that was erased: its texts in rows after After and before N are gone. UIDs are
// the uids of the agent and its runs, by which other hosts find their copies. There are none if this
// host only followed the erasure of another host.
type Erasure struct {
	N         int64    `db:"n"`
	After     int64    `db:"after"`
	Owner     string   `db:"owner"`
	Agent     string   `db:"agent"`
	UIDs      []string `db:"-"`
	Principal string   `db:"-"` // of the owner
}

// Agent is an agent as it is now. Doc is its line in an export.
type Agent struct {
	UID, Owner, Name string
	Principal        string // of the owner
	Takeover         string // what the agent's policy says: auto, manual or never
	Doc              string
	KeyID            string
}

// Name is an agent, or one of its runs, by name. If the engine has something under this name with
// another uid, that was removed here. UID is "" if nothing has the name now. Run is "" for an agent
// with all of its runs.
type Name struct {
	Owner, Agent, Run string
	UID               string
}

// Run is a run as it is now, with the parts of it that have changed.
type Run struct {
	UID, AgentUID, Owner, Agent, Name string

	Principal string // of the owner
	Named     bool   // no other run of the principal may have the name in the whole fleet
	Term      int64
	AsOf      int64 // the row of the audit log up to which this copy of the run is current
	Status    string
	UpdatedAt string
	Seq       int64 // of its newest checkpoint
	Doc       string
	KeyID     string

	Whole       bool // Rows has all rows of the run, and Live lists all of its checkpoints
	Live        []int64
	Gone        []int64 // checkpoints that were removed, by n
	Segments    []int64 // all segments that exist; read only if a checkpoint was removed
	Trim        bool    // Segments is set
	Checkpoints []Checkpoint
	Marked      []Checkpoint // checkpoints without their states: the members that can change
	Pieces      []Segment    // segments that Checkpoints need and the engine may lack
	Rows        []Row
	Writes      []string // the keys of all writes of LangGraph's tasks that still exist
	TrimWrites  bool     // Writes is set
	FirstEvent  int64    // events before it are gone; 0 for none
}

// Ended reports that the run's owner has ended its segment, and so has let go of the run. A run that
// was only found dead has not ended: this host may start it again.
func (r *Run) Ended() bool { return LetsGo(r.Status) }

// LetsGo reports the same for a run's status: another host may claim the run at once.
func LetsGo(status string) bool {
	switch status {
	case "completed", "failed", "suspended", "awaiting_continuation":
		return true
	}
	return false
}

// RunName is the name of a run in messages, and the key for a run that another host owns.
func RunName(owner, agent, run string) string { return owner + " " + agent + "/" + run }

// Checkpoint is a checkpoint with its state as it is stored: either a body, or pieces.
type Checkpoint struct {
	N       int64
	ID      string
	Seq     int64
	Kind    string
	Suspect bool
	SHA256  string
	Size    int64
	Pieces  *string // a JSON array of [segment, offset, length]
	Body    []byte
	Doc     string // the row of an export
	KeyID   string
	Damage  string // why the engine's copy cannot be read, "" if it can
}

// Segment is a piece of one or more states.
type Segment struct {
	ID, Size int64
	Data     []byte
	KeyID    string
}

// Row is a step, an operation, an event or another row of a run. Doc is the row as an export has it.
type Row struct {
	Kind  string
	Key   string
	Order int64
	Doc   string
	KeyID string
}

// EpochBits is the number of low bits of an epoch that count on one host. The bits above them are
// the term.
const EpochBits = 20

// TermOf returns the term of an epoch.
func TermOf(epoch int64) int64 { return epoch >> EpochBits }

// FirstEpoch returns the first epoch of a term.
func FirstEpoch(term int64) int64 { return term<<EpochBits | 1 }

// Standing says how an engine's mark compares with the audit log of a host.
type Standing string

// The ways in which an engine's mark can compare.
const (
	InStep   Standing = "in_step"
	WentBack Standing = "engine_went_back" // the engine has less than it had acknowledged
	Split    Standing = "split"            // the engine has another history of this database than the database itself
)

// Compare compares the engine's mark with the audit log of this host. word is the last mark that the
// engine has acknowledged, as far as the host knows. head is the end of the audit log. here is the
// hash that the audit log has for the engine's row, "" if that row is archived.
func Compare(engine, word, head Mark, here string) Standing {
	switch {
	case engine.N > head.N:
		return Split
	case engine.N > 0 && here != "" && here != engine.Hash:
		return Split
	case engine.N < word.N:
		return WentBack
	}
	return InStep
}
