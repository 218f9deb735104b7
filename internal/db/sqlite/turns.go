package sqlite

// turns is a queue in which owners take turns: one owner's flood delays
// another's write by one operation, not by the flood. Within an owner the
// order of arrival is kept.
type turns struct {
	owners map[string][]*Op
	order  []string // the owners with something waiting, next first
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

// first is the operation whose turn it is, nil where none waits.
func (t *turns) first() *Op {
	if t.count == 0 {
		return nil
	}
	return t.owners[t.order[0]][0]
}

// take removes operations in turns, at least one and at most so many.
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

// remove takes the first operation out and sends its owner to the back.
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
