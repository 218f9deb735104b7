package spans

import (
	"cmp"
	"slices"
	"sort"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// group is the spans of one run of an agent, in the order in which they ended.
type group struct {
	agent, run string
	trace      string // the trace that the run is named for; "" if a conversation names it
	spans      []*said
	turns      map[string]string // by key of a tool's step: the model's answer that it came from
	rootEnded  bool
}

// bound is the run of earlier spans of a trace.
type bound struct{ agent, run string }

// resolve sorts the spans of one trace into runs. A span belongs to the conversation that it names,
// else to the conversation of its nearest ancestor, else to that of another span of the trace, else
// to the trace.
func resolve(id string, spans []*said, known *trace, former *bound) []*group {
	slices.SortFunc(spans, inOrder)
	agent, fallback := agentOf(spans, known, former), fallbackOf(id, spans, known, former)
	groups := map[string]*group{}
	var list []*group
	for _, span := range spans {
		span.inner = span.Kind == observed.Inference && above(span, known, func(l link) bool { return l.model }) != ""
	}
	turns := turnsOf(spans, known)
	for _, span := range spans {
		name := conversation(span, known)
		if name == "" {
			name = fallback
		}
		g := groups[name]
		if g == nil {
			g = &group{agent: agent, run: name, turns: turns}
			if name == id {
				g.trace = id
			}
			groups[name] = g
			list = append(list, g)
		}
		g.spans = append(g.spans, span)
		g.rootEnded = g.rootEnded || span.Parent == "" || known.root
	}
	return list
}

// inOrder sorts by end, then by id.
func inOrder(a, b *said) int {
	return cmp.Or(cmp.Compare(a.EndedNS, b.EndedNS), cmp.Compare(a.ID, b.ID))
}

// conversation is the conversation that a span or its nearest ancestor names.
func conversation(span *said, known *trace) string {
	if span.Run != "" {
		return span.Run
	}
	for id, steps := span.Parent, 0; id != "" && steps < mostLinks; steps++ {
		l, is := known.links[id]
		if !is {
			return ""
		}
		if l.run != "" {
			return l.run
		}
		id = l.parent
	}
	return ""
}

// fallbackOf is the run of spans without a conversation of their own.
func fallbackOf(id string, spans []*said, known *trace, former *bound) string {
	if former != nil {
		return former.run
	}
	for _, span := range spans {
		if span.Run != "" {
			return span.Run
		}
	}
	least := "" // the least name, because links have no order
	for _, l := range known.links {
		if l.run != "" && (least == "" || l.run < least) {
			least = l.run
		}
	}
	return cmp.Or(least, id)
}

// nobody is the agent of spans that name no agent.
const nobody = "otlp"

// agentOf is the agent of a trace: the root is the best source.
func agentOf(spans []*said, known *trace, former *bound) string {
	if former != nil {
		return former.agent
	}
	names := []string{known.rootAgent}
	for _, span := range spans {
		if span.Parent == "" {
			names = append(names, span.RootAgent)
		}
	}
	for _, root := range []bool{true, false} {
		for _, span := range spans {
			if root == (span.Parent == "") {
				names = append(names, span.Agent)
			}
		}
	}
	for _, span := range spans {
		names = append(names, span.Service)
	}
	for _, name := range names {
		if name = ckpt.AgentNameOf(name); name != "" {
			return name
		}
	}
	return nobody
}

// turnsOf finds for each tool the model's answer that it came from: the last one that ended before
// the tool began, below the same agent. A tool without such an answer is a turn of its own.
// A call that messages tell of can have begun as soon as that answer was there.
func turnsOf(spans []*said, known *trace) map[string]string {
	answers := map[string][]turn{} // by agent, in the order in which they ended
	for _, answer := range append(slices.Clone(known.turns), answersOf(spans, known)...) {
		answers[answer.below] = append(answers[answer.below], answer)
	}
	for _, list := range answers {
		slices.SortFunc(list, func(a, b turn) int { return cmp.Or(cmp.Compare(a.ended, b.ended), cmp.Compare(a.span, b.span)) })
	}
	turns := map[string]string{}
	for _, span := range spans {
		if span.Kind != observed.Tool {
			continue
		}
		from, list := span.ID, answers[below(span, known)]
		if span.Told {
			from = unknownTurn + span.Parent // all that were told at once
		}
		if n := sort.Search(len(list), func(i int) bool { return list[i].ended > span.BeganNS }); n > 0 {
			from = list[n-1].span
			if span.Told {
				span.BeganNS = list[n-1].ended
				span.Began = ckpt.At(time.Unix(0, span.BeganNS))
			}
		}
		turns[span.Key()] = "span:" + from
	}
	return turns
}

// unknownTurn begins the turn of calls that messages tell of, if no span of the answer that made them is known.
const unknownTurn = "before:"

// below is the agent's span that a span lies below, "" if none is known.
func below(span *said, known *trace) string {
	return above(span, known, func(l link) bool { return l.agent })
}

// above is the nearest span above a span that is one of these, "" if none is known.
func above(span *said, known *trace, is func(link) bool) string {
	for id, steps := span.Parent, 0; id != "" && steps < mostLinks; steps++ {
		l, there := known.links[id]
		if !there {
			return ""
		}
		if is(l) {
			return id
		}
		id = l.parent
	}
	return ""
}

// answersOf are the turns from which later spans of the trace may have come.
func answersOf(spans []*said, known *trace) (list []turn) {
	for _, span := range spans {
		if span.Kind == observed.Inference && !span.inner {
			list = append(list, turn{span.ID, below(span, known), span.EndedNS})
		}
	}
	return list
}
