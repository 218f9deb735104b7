package console

import (
	"context"
	"errors"
	"net/http"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// findView is the result of a search.
type findView struct {
	frame
	Runs        []listRow
	Checkpoints []foundCheckpoint
	More        bool // there are runs that were not searched
	MoreLists   bool // there are checkpoints that were not searched
}

type foundCheckpoint struct {
	Href, Run string
	C         ckpt.Checkpoint
}

// find searches for runs by name, goal and label, and for checkpoints by the beginning of
// an id and by label.
func (c *Console) find(w http.ResponseWriter, r *http.Request) {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	v := findView{frame: c.frameOf(r, "Find", "-")}
	v.Query = text
	if err := c.search(r.Context(), text, &v); err != nil {
		c.trouble(w, r, err)
		return
	}
	c.show(w, r, http.StatusOK, "find", v)
}

func (c *Console) search(ctx context.Context, text string, v *findView) error {
	if text == "" {
		return nil
	}
	if err := c.searchCheckpoints(ctx, text, v); err != nil {
		return err
	}
	page, err := c.daemon.all().Runs(ctx, ckpt.RunFilter{Limit: ckpt.MaxLimit})
	if err != nil {
		return err
	}
	v.More = page.Next != ""
	low := strings.ToLower(text)
	for i := range page.Runs {
		run := &page.Runs[i]
		if len(v.Runs) < 60 && matches(run, low) {
			v.Runs = append(v.Runs, rowOfRun(v.frame, run))
		}
	}
	return nil
}

// The limits of a search for checkpoints.
const (
	mostFound       = 40
	minPrefix       = 4   // digits, as on the command line
	mostSearchPages = 120 // of ckpt.MaxLimit checkpoints each
)

// searchCheckpoints searches for a checkpoint by its id or the beginning of it, or for
// those that have a label, which is written name=value.
func (c *Console) searchCheckpoints(ctx context.Context, text string, v *findView) error {
	if ckpt.CheckID(text) == nil {
		cp, err := c.daemon.all().Checkpoint(ctx, text, false)
		var e *ckpt.Error
		if errors.As(err, &e) && e.Code == ckpt.CodeNotFound {
			return nil
		}
		if err == nil {
			v.found(cp)
		}
		return err
	}
	f := ckpt.CheckpointFilter{Limit: ckpt.MaxLimit}
	name, value, isLabel := strings.Cut(text, "=")
	if isLabel {
		f.Labels = ckpt.Labels{strings.TrimSpace(name): strings.TrimSpace(value)}
		if ckpt.CheckLabels(f.Labels) != nil {
			return nil
		}
	} else if !isPrefix(text) {
		return nil
	}
	return c.eachCheckpoint(ctx, f, v, func(cp *ckpt.Checkpoint) {
		if isLabel || begins(cp.ID, text) {
			v.found(cp)
		}
	})
}

// eachCheckpoint visits the checkpoints of all agents, the newest of each agent first,
// until it has found enough or has visited the maximum number.
func (c *Console) eachCheckpoint(ctx context.Context, f ckpt.CheckpointFilter, v *findView, visit func(*ckpt.Checkpoint)) error {
	agents, err := c.daemon.all().Agents(ctx, ckpt.AgentFilter{Limit: ckpt.MaxLimit})
	if err != nil {
		return err
	}
	type list struct{ owner, agent, before string }
	lists := make([]list, 0, len(agents.Agents))
	for _, a := range agents.Agents {
		lists = append(lists, list{a.Owner, a.Agent, ""})
	}
	for pages := 0; len(lists) > 0 && len(v.Checkpoints) < mostFound; pages++ {
		if pages == mostSearchPages {
			v.MoreLists = true
			return nil
		}
		l := lists[0]
		lists = lists[1:]
		f.Agent, f.Before = l.agent, l.before
		page, err := c.daemon.of(l.owner).Checkpoints(ctx, f)
		if err != nil {
			return err
		}
		for i := range page.Checkpoints {
			visit(&page.Checkpoints[i])
		}
		if page.Next != "" {
			lists = append(lists, list{l.owner, l.agent, string(page.Next)})
		}
	}
	v.MoreLists = v.MoreLists || len(lists) > 0 || agents.Next != ""
	return nil
}

func (v *findView) found(cp *ckpt.Checkpoint) {
	if len(v.Checkpoints) >= mostFound {
		v.MoreLists = true
		return
	}
	at := runPath(v.Base, cp.Owner, cp.Agent, cp.Run) + "?cp=" + cp.ID
	v.Checkpoints = append(v.Checkpoints, foundCheckpoint{at, cp.Agent + " / " + cp.Run, *cp})
}

// plainID returns an id without hyphens, in lower case.
func plainID(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }

// isPrefix reports whether a text can be the beginning of an id.
func isPrefix(text string) bool {
	digits := plainID(text)
	return len(digits) >= minPrefix && len(digits) <= 32 && strings.Trim(digits, "0123456789abcdef") == ""
}

// begins reports whether an id begins with a text. It ignores hyphens and case.
func begins(id, text string) bool { return strings.HasPrefix(plainID(id), plainID(text)) }

func matches(run *ckpt.Run, low string) bool {
	in := func(s string) bool { return strings.Contains(strings.ToLower(s), low) }
	if in(run.Agent+" / "+run.Run) || in(run.Agent+"/"+run.Run) || in(string(run.Goal)) || in(string(run.Workflow)) {
		return true
	}
	for name, value := range run.Labels {
		if in(name+"="+value) || in(value) {
			return true
		}
	}
	return false
}
