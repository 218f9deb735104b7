package fleet

// Mark is the row of a host's audit log up to which the engine has what the host
// committed, and that row's hash.
type Mark struct {
	N    int64  `json:"n"`
	Hash string `json:"hash"`
}

// Limits bound a batch.
type Limits struct {
	Rows  int   // of the audit log
	Bytes int64 // of everything; one run is never cut
}

// Changes are what one host committed after a mark, as of one snapshot. Each run in it
// is exactly what it was then.
type Changes struct {
	From, To Mark
	Head     int64 // the newest row of the audit log then
	Since    int64 // when the oldest row of the batch was written, in milliseconds since 1970; 0 for none
	Journal  []JournalRow
	Erased   []Erasure
	Agents   []Agent
	Names    []Name // of agents and runs that the rows name, with the uids that they have now
	Runs     []Run
	Size     int64
}

// Empty says that nothing has changed.
func (c *Changes) Empty() bool { return c.To == c.From }

// JournalRow is a row of the audit log. Texts is what an erasure takes from it.
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
	KeyID   string // of the key that Texts is sealed with, "" for a text in the clear; the same in what follows
}

// Erasure is an agent that was erased: its texts in rows after After and before N are gone. UIDs are
// those of the agent and its runs, by which other hosts know their copies. There are none
// where this host has followed the erasure of another one.
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

// Name is an agent, or a run of one, by name. What the engine has under the name with
// another uid is gone. UID is "" where there is nothing of the name. Run is "" for an
// agent with all of its runs.
type Name struct {
	Owner, Agent, Run string
	UID               string
}

// Run is a run as it is now, with what has changed of it.
type Run struct {
	UID, AgentUID, Owner, Agent, Name string

	Principal string // of the owner
	Term      int64
	AsOf      int64 // the row of the audit log that it is as of
	Status    string
	UpdatedAt string
	Seq       int64 // of its newest checkpoint
	Doc       string
	KeyID     string

	Whole       bool // Rows are all that there are, and Live lists all checkpoints
	Live        []int64
	Gone        []int64 // checkpoints that went, by n
	Segments    []int64 // all that are there; asked for where a checkpoint went
	Trim        bool    // Segments holds
	Checkpoints []Checkpoint
	Marked      []Checkpoint // without their states: what may change of them
	Pieces      []Segment    // that Checkpoints need and the engine may not have
	Rows        []Row
	Writes      []string // the keys of all that LangGraph's tasks wrote and that is there
	TrimWrites  bool     // Writes holds
	FirstEvent  int64    // events before it are gone; 0 for none
}

// Ended says that the run's owner has ended its segment, and so let go of the run. One
// that was only found dead is not ended: whoever watches it here may start it again.
func (r *Run) Ended() bool { return LetsGo(r.Status) }

// LetsGo says the same of a run's status: another host may claim the run at once.
func LetsGo(status string) bool {
	switch status {
	case "completed", "failed", "suspended", "awaiting_continuation":
		return true
	}
	return false
}

// RunName names a run for people, and a run that another host owns.
func RunName(owner, agent, run string) string { return owner + " " + agent + "/" + run }

// Checkpoint is a checkpoint with the state as it is stored: a body, or pieces.
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
	Damage  string // why the engine's copy cannot be read, "" where it can
}

// Segment is a piece of states.
type Segment struct {
	ID, Size int64
	Data     []byte
	KeyID    string
}

// Row is a step, an operation, an event or whatever else belongs to a run. Doc is the
// row of an export of that kind.
type Row struct {
	Kind  string
	Key   string
	Order int64
	Doc   string
	KeyID string
}

// EpochBits are the bits of an epoch that count on one host. Those above are the term.
const EpochBits = 20

// TermOf is the term of an epoch.
func TermOf(epoch int64) int64 { return epoch >> EpochBits }

// FirstEpoch is the epoch with which a term begins.
func FirstEpoch(term int64) int64 { return term<<EpochBits | 1 }

// Standing says how an engine's mark stands to the audit log of a host.
type Standing string

// The ways in which an engine's mark may stand.
const (
	InStep   Standing = "in_step"
	WentBack Standing = "engine_went_back" // the engine has less than it had acknowledged
	Split    Standing = "split"            // the engine has another past of this database than the database itself
)

// Compare says how the engine's mark stands. word is the mark that the engine has
// acknowledged last, as far as the host knows; head is the end of the audit log, and
// here the hash of the engine's row in it, "" where the row is archived.
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
