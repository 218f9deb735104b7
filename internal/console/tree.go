package console

import (
	"html/template"
	"net/http"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
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

// mostBranches is how many runs a tree shows.
const mostBranches = 12

func (c *Console) tree(w http.ResponseWriter, r *http.Request) {
	ctx, owner := r.Context(), r.PathValue("owner")
	line, ref, run, err := c.runOf(r)
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
	branches := []draw.Branch{{Run: run, From: -1}}
	index := map[string][2]int64{} // checkpoint to branch and seq
	for i := 0; i < len(branches); i++ {
		b := &branches[i]
		list, err := line.Checkpoints(ctx, ckpt.CheckpointFilter{Agent: ref.Agent, Run: b.Run.Run, Limit: 400})
		if err != nil {
			c.trouble(w, r, err)
			return
		}
		for j := range list.Checkpoints {
			cp := &list.Checkpoints[j]
			index[cp.ID] = [2]int64{int64(i), cp.Seq}
			b.Marks = append(b.Marks, survey.CheckpointMark{ID: cp.ID, Seq: cp.Seq, Kind: cp.Kind, Pinned: cp.Pinned,
				Suspect: cp.Suspect, CreatedAt: cp.CreatedAt})
		}
		slices.Reverse(b.Marks)
		for j := range page.Runs {
			fork := &page.Runs[j]
			at, ok := index[string(fork.ForkedFrom)]
			known := slices.ContainsFunc(branches, func(x draw.Branch) bool { return x.Run.Run == fork.Run })
			if ok && !known && len(branches) < mostBranches {
				branches = append(branches, draw.Branch{Run: fork, From: int(at[0]), Seq: at[1]})
			}
		}
	}
	c.show(w, r, http.StatusOK, "tree", viewTree(c.frameOf(r, run.Agent+" / "+run.Run, "runs"), owner, branches, forecast))
}

// viewTree draws a run, which is the first branch, with its forks.
func viewTree(f frame, owner string, branches []draw.Branch, forecast *survey.Forecast) *treeView {
	run := branches[0].Run
	v := &treeView{frame: f, Page: runPath(f.Base, owner, run.Agent, run.Run), Lanes: len(branches)}
	v.Name, v.Crumb = run.Agent+" / "+run.Run, run.Owner
	goes := map[string]bool{}
	for i := range forecast.Going {
		if g := &forecast.Going[i]; g.When != survey.GoesByAge {
			goes[g.Checkpoint] = true
		}
	}
	for i := range branches {
		b := &branches[i]
		b.Page = runPath(v.Base, owner, b.Run.Agent, b.Run.Run)
	}
	v.Chart = draw.Tree(branches, goes)
	v.forecast(forecast)
	return v
}

// forecast shows what will be removed next.
func (v *treeView) forecast(f *survey.Forecast) {
	v.Going, v.MoreGoing = goingRows(v.frame, f)
	v.Keeping, v.Guarded, v.Bytes = f.Keeping, f.Guarded, f.Bytes
}

// mostGoing is how many of the checkpoints to be removed a page lists.
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
			row.When = draw.LongClock(fr.Now, g.Goes)
		}
		rows = append(rows, row)
	}
	return rows, more + f.MoreGoing
}
