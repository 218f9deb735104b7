package draw

import (
	"html/template"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// Branch is a run in the tree.
type Branch struct {
	Run   *ckpt.Run
	Marks []survey.CheckpointMark
	From  int    // index of the branch that it was forked from; -1 for the first one
	Seq   int64  // of the checkpoint at which it was forked
	Page  string // the address of the run's page
}

// mostTreeMarks is how many of the newest checkpoints of a run a tree shows.
const mostTreeMarks = 70

// Tree draws runs as lanes, and each fork as a line from its start. goes has the ids of the
// checkpoints that retention will remove next.
func Tree(branches []Branch, goes map[string]bool) template.HTML {
	const width, left = 1180.0, 150.0
	from, to := int64(1<<62), int64(1)
	for _, b := range branches {
		marks := cutMarks(b.Marks)
		for _, m := range marks {
			at := m.Seq + b.offset(branches)
			from, to = min(from, at), max(to, at)
		}
	}
	from = min(from, to)
	per := (width - left - 30) / float64(max(1, to-from))
	x := func(at int64) float64 { return left + 14 + float64(at-from)*per }
	height := float64(60 + 62*len(branches))
	s := &svg{}
	s.put(`<svg viewBox="0 0 `, width, ` `, height, `" role="group" aria-label="`, Plural(len(branches), "run"),
		` with their checkpoints and forks">`)
	for i := range branches {
		b := &branches[i]
		y := 50 + 62*i
		word := StatusBadge(b.Run.Status).Word
		s.put(`<text class="lab" x="0" y="`, y-2, `">`, told(FirstLine(b.Run.Run, 22)), `</text><text x="0" y="`, y+13, `">`, told(word))
		if b.From >= 0 {
			s.put(` · fork of `, b.Seq)
		}
		s.raw(`</text>`)
		marks, off := cutMarks(b.Marks), b.offset(branches)
		if b.From >= 0 && len(marks) > 0 {
			fx, fy, ex := x(b.Seq+branches[b.From].offset(branches)), 50+62*b.From, x(marks[0].Seq+off)
			s.put(`<path class="edge fk" d="M`, max(left, fx), ` `, fy, `C`, max(left, fx), ` `, y, ` `, max(left, fx), ` `,
				y, ` `, ex, ` `, y, `H`, x(marks[len(marks)-1].Seq+off), `"/>`)
		} else if len(marks) > 0 {
			s.put(`<path class="edge" d="M`, x(marks[0].Seq+off), ` `, y, `H`, x(marks[len(marks)-1].Seq+off), `"/>`)
		}
		for _, m := range marks {
			class := ""
			if m.Suspect {
				class = "sus"
			}
			s.put(`<a class="mk" href="`, told(b.Page), `?cp=`, told(m.ID),
				`" aria-label="checkpoint `, m.Seq, ` of `, told(b.Run.Run), `" transform="translate(`, x(m.Seq+off), ` `, y, `)">`)
			s.checkpoint(m.Kind, class, min(4.2, max(2, per*.4)))
			if m.Pinned {
				s.raw(`<path class="pin" d="M0-8v-6M-3.5-14H3.5"/>`)
			}
			if goes[m.ID] {
				s.raw(`<circle class="go" r="8"/>`)
			}
			s.raw(`</a>`)
		}
	}
	s.raw(`</svg>`)
	return s.html()
}

// offset returns how far a fork's own numbers are moved, so that it is drawn after the
// point where it began.
func (b *Branch) offset(all []Branch) int64 {
	if b.From < 0 {
		return 0
	}
	return b.Seq + all[b.From].offset(all)
}

func cutMarks(marks []survey.CheckpointMark) []survey.CheckpointMark {
	return marks[max(0, len(marks)-mostTreeMarks):]
}
