package seal

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Agent opens an agent and the rows of its runs, but not the contents of the runs. If a
// run does not open, its Damage says why.
func (o *Opener) Agent(a *fleet.LostAgent) error {
	doc, err := o.Text(a.Doc, a.UID, agentPlace(a.UID))
	if err != nil {
		return fmt.Errorf("agent %s: %w", a.Name, err)
	}
	a.Doc = doc
	for i := range a.Runs {
		if err := o.RunDoc(&a.Runs[i]); err != nil {
			a.Runs[i].Damage = err.Error()
		}
	}
	return nil
}

// RunDoc opens the row of a run.
func (o *Opener) RunDoc(r *fleet.LostRun) (err error) {
	r.Doc, err = o.Text(r.Doc, r.UID, runPlace(r.UID))
	return err
}

// NoKey reports whether a text says that only the key is missing here.
func NoKey(text string) bool { return strings.Contains(text, ErrNoKey.Error()) }

// MissingKey returns the name of the key that is missing, from a text for which NoKey is true.
func MissingKey(text string) string {
	_, name, _ := strings.Cut(text, ErrNoKey.Error()+sealedWith)
	name, _, _ = strings.Cut(name, notSet)
	return name
}

// Lacks returns why something in a run that Run has opened stays closed for want of a key,
// "" if no key is missing.
func Lacks(r *fleet.LostRun) (why string) {
	for i := range r.Checkpoints {
		if NoKey(r.Checkpoints[i].Damage) {
			return r.Checkpoints[i].Damage
		}
	}
	for _, u := range r.Unread {
		if NoKey(u.Reason) {
			return u.Reason
		}
	}
	return ""
}

// Run opens the contents of a run. It leaves out what does not open, and notes the
// reason: for a checkpoint in its Damage, for another row in Unread.
func (o *Opener) Run(r *fleet.LostRun) {
	whole := r.Segments[:0]
	why := map[int64]error{}
	for _, s := range r.Segments {
		if s.KeyID != "" {
			var err error
			if s.Data, err = o.Open(s.Data, r.UID, segmentPlace(r.UID, r.DB, s.ID)); err != nil {
				why[s.ID] = err
				continue
			}
		}
		whole = append(whole, s)
	}
	r.Segments = whole
	for i := range r.Checkpoints {
		c := &r.Checkpoints[i]
		if err := o.checkpoint(r, c, why); err != nil {
			c.Damage = err.Error()
		}
	}
	rows := r.Rows[:0]
	for _, row := range r.Rows {
		doc, err := o.Text(row.Doc, r.UID, rowPlace(r.UID, row.Kind, row.Key))
		if err != nil {
			r.Unread = append(r.Unread, fleet.Unread{Kind: row.Kind, Key: row.Key, Reason: err.Error()})
			continue
		}
		row.Doc = doc
		rows = append(rows, row)
	}
	r.Rows = rows
}

func (o *Opener) checkpoint(r *fleet.LostRun, c *fleet.Checkpoint, why map[int64]error) (err error) {
	sha, doc, err := o.checkpointDoc(r, c)
	if err != nil {
		return err
	}
	if c.KeyID != "" {
		b, err := o.box(c.KeyID, r.UID)
		if err != nil {
			return err
		}
		if b.Sum(sha) != c.SHA256 {
			return ErrBroken
		}
	}
	c.SHA256, c.Doc = sha, doc
	if c.Body != nil && c.KeyID != "" { // its document may have been sealed after its state was shipped in the clear
		if c.Body, err = o.Open(c.Body, r.UID, checkpointPlace(r.UID, r.DB, c.N, "body")); err != nil {
			return err
		}
	}
	for id, broken := range why {
		if c.Pieces != nil && strings.Contains(*c.Pieces, fmt.Sprintf("[%d,", id)) {
			return fmt.Errorf("segment %d: %w", id, broken)
		}
	}
	return nil
}

// checkpointDoc opens the document of a checkpoint, and returns the hash of its state. The
// document can be in the clear although the state is sealed: it was shipped again after
// seals were switched off.
func (o *Opener) checkpointDoc(r *fleet.LostRun, c *fleet.Checkpoint) (sha, doc string, err error) {
	if !strings.HasPrefix(c.Doc, textMark) {
		if c.KeyID == "" {
			return c.SHA256, c.Doc, nil
		}
		var row struct {
			SHA256 string `json:"sha256"`
		}
		if json.Unmarshal([]byte(c.Doc), &row) != nil {
			return "", "", ErrBroken
		}
		return row.SHA256, c.Doc, nil
	}
	text, err := o.Text(c.Doc, r.UID, checkpointPlace(r.UID, r.DB, c.N, "doc"))
	if err != nil {
		return "", "", err
	}
	sha, doc, is := strings.Cut(text, "\n")
	if !is {
		return "", "", ErrBroken
	}
	return sha, doc, nil
}

// Audit opens the texts of a row of the audit log of a database.
func (o *Opener) Audit(texts, db string, n int64) (string, error) {
	return o.Text(texts, db, auditPlace(db, n))
}

// Has reports whether this host has the key of a sealed text. name is the key's name,
// "" for in the clear.
func (o *Opener) Has(name string) bool {
	return name == "" || o.Ring != nil && o.Ring.Find(name) != nil
}
