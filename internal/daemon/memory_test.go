package daemon

import "testing"

// TestMemoryIsGivenBack: memory is returned to the system after work, and after
// a peak without work, but not again and again.
func TestMemoryIsGivenBack(t *testing.T) {
	held, answered, gave := uint64(20<<20), int64(0), 0
	live := uint64(20 << 20)
	g := &giver{held: func() uint64 { return held }, answered: func() int64 { return answered }, free: func() { gave++; held = live }, percent: 100}
	g.floor, g.least = held, held
	for _, step := range []struct {
		what     string
		requests int64
		held     uint64
		live     uint64
		gives    bool
	}{
		{"at rest", 0, 21 << 20, 20 << 20, false},
		{"ordinary work: the heap is twice what lives", 1000, 40 << 20, 20 << 20, false},
		{"more of it", 1000, 45 << 20, 20 << 20, false},
		{"it has ended", 0, 45 << 20, 20 << 20, true},
		{"at rest", 0, 22 << 20, 20 << 20, false},
		{"half-sent requests are never answered", 0, 300 << 20, 25 << 20, true},
		{"at rest", 3, 26 << 20, 25 << 20, false},
		{"half-sent requests, looked at while they are held", 0, 300 << 20, 290 << 20, true},
		{"they are gone", 0, 290 << 20, 20 << 20, true},
		{"at rest", 3, 26 << 20, 25 << 20, false},
		{"an application that stays large", 0, 100 << 20, 100 << 20, true},
		{"an application that stays large", 0, 100 << 20, 100 << 20, true},
		{"it is tried less and less often", 0, 100 << 20, 100 << 20, false},
		{"an application that stays large", 0, 100 << 20, 100 << 20, true},
		{"it is tried less and less often", 0, 100 << 20, 100 << 20, false},
		{"it is tried less and less often", 0, 100 << 20, 100 << 20, false},
		{"at rest", 3, 26 << 20, 25 << 20, false},
		{"much work", 5000, 400 << 20, 200 << 20, true},
		{"it goes on", 5000, 390 << 20, 200 << 20, false},
		{"it goes on", 5000, 410 << 20, 200 << 20, false},
		{"it has ended", 1, 410 << 20, 22 << 20, true},
		{"at rest", 1, 23 << 20, 22 << 20, false},
	} {
		answered += step.requests
		held, live = step.held, step.live
		if got := g.once(); got != step.gives {
			t.Fatalf("%s, %d MiB held: gave back: %v", step.what, step.held>>20, got)
		}
	}
	if gave != 9 {
		t.Errorf("%d times", gave)
	}
}

// TestHeapHeld: the Go runtime still has its figures under the names that
// heapHeld uses.
func TestHeapHeld(t *testing.T) {
	block := make([]byte, 32<<20)
	if held := heapHeld(); held < 32<<20 || held > 4<<30 {
		t.Errorf("%d bytes", held)
	}
	block[0] = 1
}

// TestGarbageMayBe: if little memory is in use, garbage may be four times as
// much. If more is in use, garbage may be as large as the configured limit, or
// as large as the memory in use if that is larger.
func TestGarbageMayBe(t *testing.T) {
	live, percent, told := uint64(0), 0, 0
	g := &giver{garbage: 128 << 20, live: func() uint64 { return live }, collect: func(p int) { percent = p; told++ }}
	for _, step := range []struct {
		live uint64
		want int
	}{{0, 400}, {5 << 20, 400}, {32 << 20, 400}, {64 << 20, 200}, {128 << 20, 100}, {1 << 30, 100}, {5 << 20, 400}} {
		live = step.live
		if g.pace(); percent != step.want {
			t.Errorf("%d MiB in use: %d percent, want %d", live>>20, percent, step.want)
		}
	}
	if told != 4 {
		t.Errorf("told %d times", told)
	}
	g = &giver{live: func() uint64 { return 1 }, collect: func(int) { t.Error("nobody asked for it") }}
	g.pace()
}
