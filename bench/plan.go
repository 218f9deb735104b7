package main

import (
	"slices"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/figures"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
)

// phase is a part of a round in which the systems run and keep the states that they are given.
type phase struct {
	title string
	cells []figures.Cell
	peers []string // nil for all
}

// history says whether every state is kept, so that the disk space counts.
func (p *phase) history() bool { return p.cells[0].Step > 0 }

func (p *phase) has(peer string) bool { return p.peers == nil || slices.Contains(p.peers, peer) }

// keepers are the peers that are measured with growing histories: the systems in which users keep
// them.
var keepers = []string{"ours", "redis", "postgres", "langgraph", "file"}

func phases() []phase {
	few, many := []int{1, 16, 64}, []int{1, 16}
	return []phase{
		{"2 KiB, all of each state is new", cells(figures.Small, 0, few), nil},
		{"64 KiB, all of each state is new", cells(figures.Large, 0, few), nil},
		{"a history of 64 KiB, 3 KiB of each state is new", cells(figures.Large, figures.LargeStep, many), keepers},
		{"a history of 512 KiB, 1.6 KiB of each state is new", cells(figures.Huge, figures.HugeStep, many), keepers},
	}
}

func cells(size, step int, clients []int) []figures.Cell {
	var all []figures.Cell
	for _, n := range clients {
		all = append(all, figures.Cell{Size: size, Step: step, Clients: n})
	}
	return all
}

// order returns the order for one measurement of a system.
func (o *options) order(c figures.Cell) load.Order {
	each := o.each.Seconds()
	return load.Order{Clients: c.Clients, Size: c.Size, Step: c.Step, Seconds: each, Warm: min(each/4, 0.25)}
}

// turned returns the list rotated by the given number, so that it begins with a different element
// each time.
func turned[T any](list []T, by int) []T {
	if len(list) == 0 {
		return nil
	}
	by %= len(list)
	return slices.Concat(list[by:], list[:by])
}
