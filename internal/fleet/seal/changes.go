package seal

import (
	"crypto/sha256"
	"strconv"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Sealer seals what one host ships. Only one goroutine may use it.
type Sealer struct {
	ring   *Ring
	db     string
	boxes  boxes
	agents map[string]sealedAgent
}

// sealedAgent is what was last sealed of an agent, so that an agent that has not
// changed gives the same text again.
type sealedAgent struct {
	plain [32]byte
	key   string
	doc   string
}

// NewSealer makes a Sealer for a database.
func NewSealer(r *Ring, db string) *Sealer {
	return &Sealer{ring: r, db: db, boxes: boxes{}, agents: map[string]sealedAgent{}}
}

// The places of what is sealed. The columns that operators need stay in the clear:
// names, kinds, statuses, sizes, times.
func agentPlace(uid string) string { return Place("fleet_agents", uid) }
func runPlace(uid string) string   { return Place("fleet_runs", uid) }
func rowPlace(run, kind, key string) string {
	return Place("fleet_rows", run, kind, key)
}
func segmentPlace(run, db string, id int64) string {
	return Place("fleet_segments", run, db, strconv.FormatInt(id, 10))
}
func checkpointPlace(run, db string, n int64, column string) string {
	return Place("fleet_checkpoints", run, db, strconv.FormatInt(n, 10), column)
}
func auditPlace(db string, n int64) string {
	return Place("fleet_audit", db, strconv.FormatInt(n, 10))
}

// Changes seals a batch in place.
func (s *Sealer) Changes(c *fleet.Changes) error {
	k := s.ring.Sealing()
	for i := range c.Agents {
		if err := s.agent(&c.Agents[i], k); err != nil {
			return err
		}
	}
	for i := range c.Runs {
		r := &c.Runs[i]
		b, err := s.boxes.of(k, r.UID)
		if err != nil {
			return err
		}
		s.run(r, b, k.ID)
	}
	for i := range c.Journal {
		j := &c.Journal[i]
		if j.Texts == nil {
			continue
		}
		b, err := s.boxes.of(k, s.db)
		if err != nil {
			return err
		}
		text := b.SealText(*j.Texts, auditPlace(s.db, j.N))
		j.Texts, j.KeyID = &text, k.ID
	}
	return nil
}

func (s *Sealer) agent(a *fleet.Agent, k *Key) error {
	plain := sha256.Sum256([]byte(a.Doc))
	was, is := s.agents[a.UID]
	if !is || was.plain != plain || was.key != k.ID {
		b, err := s.boxes.of(k, a.UID)
		if err != nil {
			return err
		}
		if len(s.agents) >= mostBoxes {
			clear(s.agents)
		}
		was = sealedAgent{plain, k.ID, b.SealText(a.Doc, agentPlace(a.UID))}
		s.agents[a.UID] = was
	}
	a.Doc, a.KeyID = was.doc, was.key
	return nil
}

func (s *Sealer) run(r *fleet.Run, b *Box, key string) {
	r.Doc, r.KeyID = b.SealText(r.Doc, runPlace(r.UID)), key
	for _, list := range [][]fleet.Checkpoint{r.Checkpoints, r.Marked} {
		for i := range list {
			s.checkpoint(r, &list[i], b, key)
		}
	}
	for i := range r.Pieces {
		p := &r.Pieces[i]
		p.Data, p.KeyID = b.Seal(p.Data, segmentPlace(r.UID, s.db, p.ID)), key
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		row.Doc, row.KeyID = b.SealText(row.Doc, rowPlace(r.UID, row.Kind, row.Key)), key
	}
}

// checkpoint seals a checkpoint. It puts the hash into the document, because the column
// gets a hash that is useless without the key.
func (s *Sealer) checkpoint(r *fleet.Run, c *fleet.Checkpoint, b *Box, key string) {
	c.Doc = b.SealText(c.SHA256+"\n"+c.Doc, checkpointPlace(r.UID, s.db, c.N, "doc"))
	c.SHA256, c.KeyID = b.Sum(c.SHA256), key
	if c.Body != nil {
		c.Body = b.Seal(c.Body, checkpointPlace(r.UID, s.db, c.N, "body"))
	}
}
