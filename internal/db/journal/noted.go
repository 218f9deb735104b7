package journal

// noteAlso notes what must be read although no row names it.
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

// hideLocal removes the names and the texts of agents that stay on this host from the rows of the
// log. The rows themselves are shipped, because each hash includes the one before. An agent that is
// gone, or belongs to somebody else by now, may have stayed here too.
func (r *reading) hideLocal() {
	if !r.choice.ByPolicy {
		return
	}
	for i := range r.Journal {
		row := &r.Journal[i]
		if _, ships := r.ids[place{owner: row.Owner, agent: row.Agent}]; row.Agent != "" && !ships {
			row.Agent, row.Run, row.Texts = "", "", nil
		}
	}
}

// noteArchived makes all runs be read whole if rows after the mark are archived, because it is not
// known what those rows said.
func (r *reading) noteArchived() {
	if r.archived <= r.From.N {
		return
	}
	for _, t := range r.runs {
		t.whole, t.full = true, true
	}
}
