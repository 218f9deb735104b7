package ledger

import "testing"

// TestNewestOnlyRises: a reader with a snapshot from before a save must not
// hide that save from later readers.
func TestNewestOnlyRises(t *testing.T) {
	var o newestOf
	if _, known := o.of(1); known {
		t.Error("a new store knows an agent")
	}
	o.raise(1, newestCheckpoint{run: 7, seq: 2, n: 20})
	o.raise(1, newestCheckpoint{run: 8, seq: 9, n: 10}) // read from the older snapshot
	o.raise(2, newestCheckpoint{run: 9, seq: 1, n: 30})
	if got, _ := o.of(1); got != (newestCheckpoint{run: 7, seq: 2, n: 20}) {
		t.Errorf("the newest of agent 1 is %+v, want n 20", got)
	}
}
