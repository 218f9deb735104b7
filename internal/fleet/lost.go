package fleet

// LostAgent is an agent as the engine holds it, to be brought back to a host.
type LostAgent struct {
	UID, Owner, Name string
	Principal        string // of the owner, "" if it is not known
	Doc              string // its line in an export
	Runs             []LostRun
}

// LostRun is a run as the engine holds it. Term is the term under which it continues.
type LostRun struct {
	UID, AgentUID, Name string

	Term        int64
	Status      string
	Doc         string // its row in an export
	Sure        bool   // nothing can have happened to the run that the engine does not know
	Checkpoints []Checkpoint
	Segments    []Segment
	Rows        []Row

	DB     string   // the database that the checkpoints come from
	KeyID  string   // the key that the run is sealed with, "" for in the clear
	Damage string   // why the run cannot be read, "" if it can
	Unread []Unread // rows that cannot be read
}

// Unread is a row of a run that cannot be read, because its seal does not open.
type Unread struct {
	Kind, Key string
	Reason    string
}

// DamagedCheckpoint is a checkpoint, or another row, that a claim has left out.
type DamagedCheckpoint struct {
	Kind   string `json:"kind"` // checkpoint, agent, run, or the kind of another row of a run
	Owner  string `json:"owner"`
	Agent  string `json:"agent"`
	Run    string `json:"run"`
	ID     string `json:"id"`
	Seq    int64  `json:"seq"`
	Reason string `json:"reason"`
}
