package console

import (
	"html/template"
	"net/http"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// treeView shows a run with its forks.
type treeView struct {
	frame
	Name, Page string
	Chart      template.HTML
	Lanes      int
	Going      []goingRow
	MoreGoing  int64
	Keeping    []survey.Keeping
	Guarded    bool
	Bytes      int64
	Cut        bool
}

type goingRow struct {
	Name, Href, When, Reason string
	Kind                     ckpt.Kind
	Seq, Stored              int64
	Goes                     ckpt.Time
}

// branch is a run in the tree.
type branch struct {
	run   *ckpt.Run
	marks []survey.CheckpointMark
	from  int // index of the branch that it was forked from; -1 for the first
	seq   int64
}

// mostBranches is how many runs a tree shows.
const mostBranches = 12

// mostTreeMarks is how many checkpoints of a run a tree shows: the newest.
const mostTreeMarks = 70

func (c *Console) tree(w http.ResponseWriter, r *http.Request) {
	ctx, owner := r.Context(), r.PathValue("owner")
	line := c.daemon.of(owner)
	ref := ckpt.RunRef{Agent: r.PathValue("agent"), Run: r.PathValue("run")}
	if err := ref.Check(); err != nil {
		c.trouble(w, r, err)
		return
	}
	run, err := line.Run(ctx, ref)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	page, err := line.Runs(ctx, ckpt.RunFilter{Agent: ref.Agent, Limit: ckpt.MaxLimit})
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	forecast, err := line.Forecast(ctx, survey.ForecastQuery{Agent: ref.Agent, Limit: 200})
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	branches := []branch{{run: run, from: -1}}
	index := map[string][2]int64{} // checkpoint: branch, seq
	for i := 0; i < len(branches); i++ {
		b := &branches[i]
		list, err := line.Checkpoints(ctx, ckpt.CheckpointFilter{Agent: ref.Agent, Run: b.run.Run, Limit: 400})
		if err != nil {
			c.trouble(w, r, err)
			return
		}
		for j := range list.Checkpoints {
			cp := &list.Checkpoints[j]
			index[cp.ID] = [2]int64{int64(i), cp.Seq}
			b.marks = append(b.marks, survey.CheckpointMark{ID: cp.ID, Seq: cp.Seq, Kind: cp.Kind, Pinned: cp.Pinned,
				Suspect: cp.Suspect, CreatedAt: cp.CreatedAt})
		}
		slices.Reverse(b.marks)
		for j := range page.Runs {
			fork := &page.Runs[j]
			at, ok := index[string(fork.ForkedFrom)]
			known := slices.ContainsFunc(branches, func(x branch) bool { return x.run.Run == fork.Run })
			if ok && !known && len(branches) < mostBranches {
				branches = append(branches, branch{run: fork, from: int(at[0]), seq: at[1]})
			}
		}
	}
	c.show(w, r, http.StatusOK, "tree", viewTree(c.frameOf(r, run.Agent+" / "+run.Run, "runs"), owner, branches, forecast))
}

// viewTree draws a run, which is the first of the branches, with its forks.
func viewTree(f frame, owner string, branches []branch, forecast *survey.Forecast) *treeView {
	run := branches[0].run
	v := &treeView{frame: f, Page: runPath(f.Base, owner, run.Agent, run.Run), Lanes: len(branches)}
	v.Name, v.Crumb = run.Agent+" / "+run.Run, run.Owner
	goes := map[string]bool{}
	for i := range forecast.Going {
		if g := &forecast.Going[i]; g.When != survey.GoesByAge {
			goes[g.Checkpoint] = true
		}
	}
	v.Chart = drawTree(branches, goes, v.Base, owner)
	v.forecast(forecast)
	return v
}

// forecast says what goes next.
func (v *treeView) forecast(f *survey.Forecast) {
	v.Going, v.MoreGoing = goingRows(v.frame, f)
	v.Keeping, v.Guarded, v.Bytes = f.Keeping, f.Guarded, f.Bytes
}

// mostGoing is how many checkpoints a page names that will go.
const mostGoing = 20

func goingRows(fr frame, f *survey.Forecast) (rows []goingRow, more int64) {
	when := map[string]string{survey.GoesNow: "now", survey.GoesNextSave: "next save", survey.GoesByBudget: "at its budget"}
	for i := range f.Going {
		g := &f.Going[i]
		if i >= mostGoing {
			more++
			continue
		}
		row := goingRow{Name: g.Agent + " / " + g.Run, Href: runPath(fr.Base, g.Owner, g.Agent,
			g.Run) + "?cp=" + g.Checkpoint, Kind: g.Kind, Seq: g.Seq, Stored: g.StoredSize, Reason: g.Reason, Goes: g.Goes}
		if row.When = when[g.When]; row.When == "" {
			row.When = longClock(fr.Now, g.Goes)
		}
		rows = append(rows, row)
	}
	return rows, more + f.MoreGoing
}

// drawTree draws runs as lanes, and each fork as a line from where it began.
func drawTree(branches []branch, goes map[string]bool, base, owner string) template.HTML {
	const width, left = 1180.0, 150.0
	from, to := int64(1<<62), int64(1)
	for _, b := range branches {
		marks := cutMarks(b.marks)
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
	s.put(`<svg viewBox="0 0 `, width, ` `, height, `" role="group" aria-label="`, plural(len(branches), "run"), ` with their checkpoints and forks">`)
	for i := range branches {
		b := &branches[i]
		y := 50 + 62*i
		word := statusOf(b.run.Status).Word
		s.put(`<text class="lab" x="0" y="`, y-2, `">`, told(firstLine(b.run.Run, 22)), `</text><text x="0" y="`, y+13, `">`, told(word))
		if b.from >= 0 {
			s.put(` · fork of `, b.seq)
		}
		s.raw(`</text>`)
		marks, off := cutMarks(b.marks), b.offset(branches)
		if b.from >= 0 && len(marks) > 0 {
			fx, fy, ex := x(b.seq+branches[b.from].offset(branches)), 50+62*b.from, x(marks[0].Seq+off)
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
			s.put(`<a class="mk" href="`, told(runPath(base, owner, b.run.Agent, b.run.Run)), `?cp=`, told(m.ID),
				`" aria-label="checkpoint `, m.Seq, ` of `, told(b.run.Run), `" transform="translate(`, x(m.Seq+off), ` `, y, `)">`)
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

// offset is how far a fork's own numbers are moved, so that it stands after where it began.
func (b *branch) offset(all []branch) int64 {
	if b.from < 0 {
		return 0
	}
	return b.seq + all[b.from].offset(all)
}

func cutMarks(marks []survey.CheckpointMark) []survey.CheckpointMark {
	return marks[max(0, len(marks)-mostTreeMarks):]
}
