package figures

import "fmt"

// Cell is one kind of work.
type Cell struct {
	Size    int `json:"size"` // bytes of a state
	Step    int `json:"step"` // bytes that are new in each state of a growing history; 0 if the whole state is new
	Clients int `json:"clients"`
}

// Text describes the cell for people.
func (c Cell) Text() string {
	size := fmt.Sprintf("%d KiB", c.Size>>10)
	if c.Step > 0 {
		size += " history"
	}
	if c.Clients == 1 {
		return size + ", 1 client"
	}
	return fmt.Sprintf("%s, %d clients", size, c.Clients)
}

// The sizes that are measured.
const (
	Small = 2 << 10
	Large = 64 << 10
	Huge  = 512 << 10

	LargeStep = 3 << 10 // the new bytes in each state of a history of Large states
	HugeStep  = 1638    // 1.6 KiB, of a history of Huge states
)

// Bar is a requirement of the issue: ours is at least AtLeast times as good as the peer, in saves
// per second, or, if Bytes is set, in the disk space that a save takes.
type Bar struct {
	Peer    string  `json:"peer"`
	Cell    Cell    `json:"cell"` // Clients is 0 if Bytes is set
	Bytes   bool    `json:"bytes"`
	AtLeast float64 `json:"at_least"`
}

// Bars returns all bars of the issue.
func Bars() []Bar {
	var bars []Bar
	add := func(peer string, size, step int, clients []int, least ...float64) {
		for i, n := range clients {
			bars = append(bars, Bar{Peer: peer, Cell: Cell{size, step, n}, AtLeast: least[i]})
		}
	}
	few, many := []int{1, 16, 64}, []int{1, 16}
	add("append", Small, 0, few, 0.7, 0.5, 0.28)
	add("redis", Small, 0, few, 0.9, 0.6, 0.45)
	add("postgres", Small, 0, few, 1.0, 1.6, 2.5)
	add("etcd", Small, 0, few, 2, 1.6, 1.6)
	add("langgraph", Small, 0, few, 0.9, 3.5, 6)
	add("dbos", Small, 0, few, 1.3, 8, 14)

	add("postgres", Large, 0, few, 1, 1, 1)
	add("langgraph", Large, 0, few, 1, 1, 1)

	add("redis", Large, LargeStep, many, 0.8, 0.8)
	add("postgres", Large, LargeStep, many, 3, 5)
	add("langgraph", Large, LargeStep, many, 1.2, 4)

	add("redis", Huge, HugeStep, many, 1, 4)
	add("postgres", Huge, HugeStep, many, 10, 15)
	add("langgraph", Huge, HugeStep, many, 5, 15)

	for _, peer := range []string{"redis", "postgres", "langgraph", "file"} {
		bars = append(bars, Bar{Peer: peer, Cell: Cell{Huge, HugeStep, 0}, Bytes: true, AtLeast: 100})
	}
	return bars
}

// Verdict is the result for a bar.
type Verdict struct {
	Bar
	Measured bool    `json:"measured"`
	Ratio    float64 `json:"ratio"`
	Pass     bool    `json:"pass"`
}

// Text returns "PASS", "miss" or "not measured".
func (v Verdict) Text() string {
	switch {
	case !v.Measured:
		return "not measured"
	case v.Pass:
		return "PASS"
	}
	return "miss"
}

// Judge compares each bar with the measured ratio. ratio returns false if nothing was measured.
func Judge(bars []Bar, ratio func(Bar) (float64, bool)) []Verdict {
	var all []Verdict
	for _, bar := range bars {
		v := Verdict{Bar: bar}
		if is, known := ratio(bar); known {
			v.Measured, v.Ratio, v.Pass = true, is, is >= bar.AtLeast
		}
		all = append(all, v)
	}
	return all
}
