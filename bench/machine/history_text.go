package main

import (
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/measure"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

func (r *historiesReport) text(a *measure.Env) {
	for i := range r.Histories {
		if i > 0 {
			fmt.Fprintln(a.Stdout)
		}
		r.Histories[i].text(a, r.Saves)
	}
	a.Tell("\nKEPT says how many states stay, SENT whether the client sends each state whole or only what changed. " +
		"" +
		"DATABASE is the whole file, with audit\n" +
		"log, keys and indexes; × SMALLER sets it against the states that are kept. " +
		"FIRST and LAST are the first and the last tenth of the saves.\n" +
		"A restore is of any state that is kept, and is recorded. One client saved each state in all four ways, " +
		"in turns; each save was safe on the disk.")
}

func (r *historyReport) text(a *measure.Env, saves int) {
	fmt.Fprintln(a.Stdout, a.Out.Bold(fmt.Sprintf("%s: %s, %s in all, the last of %s", r.History, term.Count(saves,
		"state"), term.Bytes(r.Bytes), term.Bytes(r.Last))))
	t := term.NewTable("KEPT", "SENT", ">STATES", ">DATABASE", ">× SMALLER", ">SAVE P50", ">FIRST", ">LAST", ">P99", ">RESTORE P50", ">P95")
	for _, w := range r.Ways {
		t.Add(w.keptText(), w.Sent, term.Bytes(w.KeptBytes), term.Bytes(w.Database), term.Digits(w.Smaller),
			term.Millis(w.Save.P50), term.Millis(w.First.P50), term.Millis(w.LastTenth.P50), term.Millis(w.Save.P99),
			term.Millis(w.Restore.P50), term.Millis(w.Restore.P95))
	}
	t.Write(a.Stdout, a.Out)
	for _, c := range []*chart{r.saveChart(saves), r.sizeChart(saves)} {
		fmt.Fprintln(a.Stdout)
		c.write(a.Stdout, a.Out)
	}
}

func (w *historyWay) keptText() string {
	if w.Keep == 0 {
		return "all"
	}
	return fmt.Sprint(w.Keep)
}

// saveChart shows how long saves took over the course of the history, for the ways that keep all
// states.
func (r *historyReport) saveChart(saves int) *chart {
	c := &chart{title: "save p50, all kept", first: "save 1", last: fmt.Sprint(saves), label: term.Millis}
	for _, w := range r.Ways {
		if w.Keep == 0 {
			c.add(w.Sent, w.Series.SaveP50)
		}
	}
	return c
}

// sizeChart shows how the databases grew.
func (r *historyReport) sizeChart(saves int) *chart {
	c := &chart{title: "database, only the change sent", first: "save 1", last: fmt.Sprint(saves),
		label: func(v float64) string { return term.Bytes(int64(v)) }}
	for _, w := range r.Ways {
		if w.Sent == "change" {
			values := make([]float64, len(w.Series.Database))
			for i, v := range w.Series.Database {
				values[i] = float64(v)
			}
			c.add(w.keptText()+" kept", values)
		}
	}
	return c
}
