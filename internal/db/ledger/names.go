package ledger

import "github.com/ckptsidecar/ckptsidecar/internal/db/usage"

// names caches the numbers of places in the audit log. Only the writer uses it. It is cleared if a
// transaction that may have made places is rolled back, and if another program has written.
type names struct {
	places map[place]int64
	lives  map[place]int64 // of runs, by what they are called now
}

// namesMost bounds each of the maps.
const namesMost = 16384

func (n *names) forget() { *n = names{} }

// noteName keeps a number. It clears the map first if the map is full.
func noteName[K comparable](known *map[K]int64, name K, number int64) {
	if *known == nil || len(*known) >= namesMost {
		*known = map[K]int64{}
	}
	(*known)[name] = number
}

// place returns the number of a place; nil for none. A new place counts as its owner's.
func (tx *Tx) place(a *act) (any, error) {
	p := a.place
	if p == (place{}) {
		return nil, nil
	}
	if number, known := tx.Store.names.places[p]; known {
		return number, nil
	}
	var number int64
	found, err := tx.Get(&number, `SELECT id FROM places WHERE owner = ? AND agent = ? AND run = ? AND life = ?`, p.owner, p.agent, p.run, p.life)
	if err == nil && !found {
		_, err = tx.Change(&number, `INSERT INTO places (n, owner, agent, run, life) VALUES (?, ?, ?, ?, ?) RETURNING id`, a.n, p.owner, p.agent, p.run, p.life)
	}
	if err != nil {
		return nil, err
	}
	if !found && tx.Tally.Counts() && a.causedByOwner() {
		tx.Tally.AddLog(p.owner, usage.PlaceLength(p.agent, p.run))
	}
	noteName(&tx.Store.names.places, p, number)
	return number, nil
}

// lifeOf is the number of the life of the run that an entry is about: 0 if there is no such run.
func (tx *Tx) lifeOf(e *AuditEntry) (life int64, err error) {
	called := place{owner: e.Owner, agent: e.Agent, run: e.Run}
	switch {
	case e.Run == "":
		return 0, nil
	case e.Life > 0:
		return e.Life, nil
	}
	if life, known := tx.Store.names.lives[called]; known {
		return life, nil
	}
	found, err := tx.Get(&life, `SELECT r.life FROM agents a JOIN runs r ON r.agent_id = a.id WHERE a.owner = ? AND a.name = ? AND r.name = ?`,
		e.Owner, e.Agent, e.Run)
	if err == nil && found {
		noteName(&tx.Store.names.lives, called, life)
	}
	return life, err
}
