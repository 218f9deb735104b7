package sqlite

// turns is the fair queue of owners: a flood of writes of one owner delays another owner's write by
// one operation, not by the flood. The operations of one owner keep their order of arrival.
type turns struct {
	owners map[string][]*Op
	order  []string // owners with waiting operations, the next one first
	count  int
	bytes  int64
}

func (t *turns) len() int { return t.count }

func (t *turns) push(o *Op) {
	if t.owners == nil {
		t.owners = map[string][]*Op{}
	}
	if len(t.owners[o.Owner]) == 0 {
		t.order = append(t.order, o.Owner)
	}
	t.owners[o.Owner] = append(t.owners[o.Owner], o)
	t.count++
	t.bytes += o.Size
}

// first is the next operation, nil if none waits.
func (t *turns) first() *Op {
	if t.count == 0 {
		return nil
	}
	return t.owners[t.order[0]][0]
}

// take removes operations in the fair order, at least one and at most this many.
func (t *turns) take(most int, mostBytes int64) []*Op {
	batch := make([]*Op, 0, min(most, t.count))
	var size int64
	for t.count > 0 && len(batch) < most {
		next := t.first()
		if len(batch) > 0 && size+next.Size > mostBytes {
			break
		}
		size += next.Size
		batch = append(batch, next)
		t.remove()
	}
	return batch
}

// remove takes the first operation out and moves its owner to the back.
func (t *turns) remove() {
	owner := t.order[0]
	waiting := t.owners[owner]
	t.count--
	t.bytes -= waiting[0].Size
	t.order = t.order[1:]
	if len(waiting) == 1 {
		delete(t.owners, owner)
		return
	}
	t.owners[owner] = waiting[1:]
	t.order = append(t.order, owner)
}
