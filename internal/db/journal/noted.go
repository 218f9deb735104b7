package journal

// noteAlso notes what is to be read although no row names it.
func (r *reading) noteAlso() {
	for _, n := range r.choice.Also {
		p := place{n.Owner, n.Agent, n.Run}
		r.agents[p.ofAgent()] = true
		if n.Run != "" {
			t := r.touch(p)
			t.whole, t.full = true, true
		}
	}
}

// hideLocal takes the names and the texts of agents that stay on this host out of the
// rows of the log. The rows themselves are shipped, because each hashes the one before.
func (r *reading) hideLocal() {
	for i := range r.Journal {
		row := &r.Journal[i]
		if r.local[place{owner: row.Owner, agent: row.Agent}] {
			row.Agent, row.Run, row.Texts = "", "", nil
		}
	}
}

// noteArchived lets all runs be read as wholes where rows after the mark are archived: nobody
// knows what they said.
func (r *reading) noteArchived() {
	if r.archived <= r.From.N {
		return
	}
	for _, t := range r.runs {
		t.whole, t.full = true, true
	}
}
