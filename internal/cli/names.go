package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// A checkpoint has an id and, for people, shorter names:
//
//	01a2b3c4         the beginning of its id, if no other id begins so
//	coder            the newest checkpoint of an agent
//	coder@3          number 3 of the agent's run main, or of its only run
//	coder@-1         the one before the newest
//	coder/r1         the newest checkpoint of a run
//	coder/r1/3       number 3 of a run; coder/r1@3 is the same
//	coder/r1@-1      the one before the newest of a run
//	latest           the newest checkpoint, if there is only one agent
//
// If a command has named the agent already, the name can leave it out: 3, @3, -1, latest.

// CheckpointName returns a name of a checkpoint that a person can type.
func CheckpointName(c *ckpt.Checkpoint) string { return fmt.Sprintf("%s/%s/%d", c.Agent, c.Run, c.Seq) }

// The limits of a search in the lists of the daemon.
const (
	searchPages   = 200 // of ckpt.MaxLimit entries each
	minPrefix     = 4   // digits
	candidates    = 10  // the most matches that an error message lists
	numbersListed = 5
)

// place is the parsed name of a checkpoint: its agent, its run, and its number.
type place struct {
	agent string
	run   string // "" for every run
	seq   int64  // 0 for a checkpoint that is counted back from the newest
	back  int64
	exact bool // the name contains a number, which counts within one run
}

// readPlace reads AGENT@SEQ, AGENT/RUN, AGENT/RUN/SEQ, AGENT/RUN@SEQ and AGENT. It does not read ids.
func readPlace(name string) (p place, ok bool) {
	agent, rest, inRun := strings.Cut(name, "/")
	if !inRun {
		if agent, rest, p.exact = strings.Cut(name, "@"); p.exact && !p.number(rest) {
			return p, false
		}
		p.agent = agent
		return p, ckpt.CheckAgentName(agent) == nil
	}
	p.agent, p.run = agent, rest
	if at := strings.LastIndexAny(rest, "/@"); at > 0 && p.number(rest[at+1:]) {
		p.run, p.exact = rest[:at], true
	}
	return p, ckpt.CheckAgentName(agent) == nil && ckpt.CheckLife(p.run) == nil
}

// number parses the number of a checkpoint in a run: 3, -1 or latest.
func (p *place) number(text string) bool {
	if text == "latest" {
		return true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n == 0 || text[0] == '+' || n > 0 && text[0] == '0' {
		return false
	}
	if n < 0 {
		p.back = -n
	} else {
		p.seq = n
	}
	return true
}

// IsPrefix reports whether a word can be the beginning of an id.
func IsPrefix(word string) bool {
	digits := strings.ReplaceAll(word, "-", "")
	return len(digits) >= minPrefix && len(digits) <= 32 && strings.Trim(strings.ToLower(digits), "0123456789abcdef") == ""
}

// begins reports whether an id begins with a word. It ignores hyphens and case.
func begins(id, word string) bool {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
	return strings.HasPrefix(plain(id), plain(word))
}

// CheckCheckpointName refuses an invalid name of a checkpoint before any request.
func CheckCheckpointName(name string) error {
	if _, ok := readPlace(name); ok || IsPrefix(name) {
		return nil
	}
	return Usagef("%q does not name a checkpoint: give an id or its beginning, AGENT, AGENT@SEQ, AGENT/RUN/SEQ or AGENT/RUN@-1", name)
}

// CheckCheckpointNameOf is the same for a command that has named the agent.
func CheckCheckpointNameOf(name string) error {
	if (&place{}).number(strings.TrimPrefix(name, "@")) {
		return nil
	}
	return CheckCheckpointName(name)
}

// CheckpointID returns the id of the checkpoint with this name. It does not look up a complete id.
func (a *App) CheckpointID(ctx context.Context, name string) (string, error) {
	return idOf(name, func() (*ckpt.Checkpoint, error) { return a.Checkpoint(ctx, name) })
}

// CheckpointIDOf is the same for a known agent, and possibly a known run.
func (a *App) CheckpointIDOf(ctx context.Context, agent, run, name string) (string, error) {
	return idOf(name, func() (*ckpt.Checkpoint, error) { return a.checkpointOf(ctx, agent, run, name) })
}

func idOf(name string, find func() (*ckpt.Checkpoint, error)) (string, error) {
	if ckpt.CheckID(name) == nil {
		return name, nil
	}
	c, err := find()
	if err != nil {
		return "", err
	}
	return c.ID, nil
}

// Checkpoint finds the checkpoint with this name, without its state.
func (a *App) Checkpoint(ctx context.Context, name string) (*ckpt.Checkpoint, error) {
	if err := CheckCheckpointName(name); err != nil {
		return nil, err
	}
	if ckpt.CheckID(name) == nil {
		return a.Client().Checkpoint(ctx, name, false)
	}
	p, ok := readPlace(name)
	if !ok {
		return a.beginning(ctx, name, "")
	}
	c, err := a.at(ctx, p)
	switch {
	case name == "latest" && isNotFound(err):
		return a.latest(ctx)
	case !IsPrefix(name) || err != nil && !isNotFound(err):
		return c, err
	}
	others, searchErr := a.beginning(ctx, name, "")
	switch {
	case c == nil:
		return others, searchErr
	case isNotFound(searchErr):
		return c, nil
	case searchErr != nil:
		return nil, searchErr
	}
	return nil, ambiguous(name, "checkpoint", []string{"agent " + c.Agent + ", whose newest is " + CheckpointName(c), candidate(others)}, 2)
}

func (a *App) checkpointOf(ctx context.Context, agent, run, name string) (*ckpt.Checkpoint, error) {
	p := place{agent: agent, run: run, exact: name != "latest"}
	if p.number(strings.TrimPrefix(name, "@")) {
		return a.at(ctx, p)
	}
	if strings.ContainsAny(name, "/@") || !IsPrefix(name) {
		return a.Checkpoint(ctx, name)
	}
	return a.beginning(ctx, name, agent)
}

// latest returns the newest checkpoint of the agent in the environment, or of the only agent.
func (a *App) latest(ctx context.Context) (*ckpt.Checkpoint, error) {
	if agent := a.NamedAgent(""); agent != "" {
		return a.at(ctx, place{agent: agent, run: a.InRun(agent, "")})
	}
	page, err := a.Client().Agents(ctx, ckpt.AgentFilter{Limit: candidates + 1})
	switch {
	case err != nil:
		return nil, err
	case len(page.Agents) == 0:
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "no agent has saved anything yet")
	case len(page.Agents) > 1:
		var names []string
		for i := range page.Agents {
			names = append(names, page.Agents[i].Agent)
		}
		return nil, ambiguous("latest", "agent", names, len(names))
	}
	return a.at(ctx, place{agent: page.Agents[0].Agent})
}

// at finds a checkpoint by its place.
func (a *App) at(ctx context.Context, p place) (*ckpt.Checkpoint, error) {
	if p.exact && p.run == "" {
		run, err := a.oneRun(ctx, p)
		if err != nil {
			return nil, err
		}
		p.run = run
	}
	var found *ckpt.Checkpoint
	var numbers []string
	limit, skip := ckpt.MaxLimit, p.back
	if p.seq == 0 && p.back < ckpt.MaxLimit {
		limit = int(p.back) + 1
	}
	err := a.eachCheckpoint(ctx, ckpt.CheckpointFilter{Agent: p.agent, Run: p.run, Limit: limit}, func(c *ckpt.Checkpoint) bool {
		if len(numbers) < numbersListed {
			numbers = append(numbers, fmt.Sprint(c.Seq))
		}
		if p.seq == 0 && skip == 0 || p.seq != 0 && c.Seq == p.seq {
			found = c
		}
		skip--
		return found == nil && (p.seq == 0 || c.Seq > p.seq || len(numbers) < numbersListed)
	})
	switch {
	case err != nil || found != nil:
		return found, err
	case len(numbers) == 0 && p.run == "":
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "agent %s has no checkpoint", p.agent)
	case len(numbers) == 0:
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "run %s of agent %s has no checkpoint", p.run, p.agent)
	case p.seq == 0:
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "run %s of agent %s has no %d checkpoints before the newest", p.run, p.agent, p.back)
	}
	return nil, ckpt.Errorf(ckpt.CodeNotFound, "run %s of agent %s has no checkpoint %d: the newest are %s", p.run, p.agent, p.seq,
		strings.Join(numbers, ", "))
}

// oneRun returns the run for a number if no run was named: the run of exec, main, or the agent's only run.
func (a *App) oneRun(ctx context.Context, p place) (string, error) {
	if run := a.InRun(p.agent, ""); run != "" {
		return run, nil
	}
	page, err := a.Client().Checkpoints(ctx, ckpt.CheckpointFilter{Agent: p.agent, Run: ckpt.MainRun, Limit: 1})
	if err == nil && len(page.Checkpoints) > 0 {
		return ckpt.MainRun, nil
	}
	if err != nil && !isNotFound(err) {
		return "", err
	}
	runs, err := a.Client().Runs(ctx, ckpt.RunFilter{Agent: p.agent, Limit: candidates + 1})
	switch {
	case err != nil:
		return "", err
	case len(runs.Runs) == 0:
		return ckpt.MainRun, nil
	case len(runs.Runs) == 1:
		return runs.Runs[0].Run, nil
	}
	which := fmt.Sprintf("@%d", p.seq)
	if p.seq == 0 {
		which = fmt.Sprintf("@-%d", p.back)
	}
	var names []string
	for i := range runs.Runs {
		names = append(names, p.agent+"/"+runs.Runs[i].Run+which)
	}
	return "", ambiguous(p.agent+which, "run", names, len(names))
}

// eachCheckpoint calls visit for each checkpoint, newest first, as long as visit returns true.
func (a *App) eachCheckpoint(ctx context.Context, f ckpt.CheckpointFilter, visit func(*ckpt.Checkpoint) bool) error {
	for range searchPages {
		page, err := a.Client().Checkpoints(ctx, f)
		if err != nil {
			return err
		}
		for i := range page.Checkpoints {
			if !visit(&page.Checkpoints[i]) {
				return nil
			}
		}
		if f.Before = string(page.Next); f.Before == "" {
			return nil
		}
	}
	return nil
}

// beginning finds the one checkpoint whose id begins with a word, of one agent or of all. It searches the newest
// checkpoints of each agent first.
func (a *App) beginning(ctx context.Context, word, agent string) (*ckpt.Checkpoint, error) {
	type list struct {
		agent, before string
	}
	lists := []list{{agent: agent}}
	if agent == "" {
		agents, err := a.AgentNames(ctx)
		if err != nil {
			return nil, err
		}
		lists = lists[:0]
		for _, name := range agents {
			lists = append(lists, list{agent: name})
		}
	}
	var found []ckpt.Checkpoint
	left := searchPages
	for ; left > 0 && len(lists) > 0; left-- {
		l := lists[0]
		lists = lists[1:]
		page, err := a.Client().Checkpoints(ctx, ckpt.CheckpointFilter{Agent: l.agent, Before: l.before, Limit: ckpt.MaxLimit})
		if err != nil {
			return nil, err
		}
		for i := range page.Checkpoints {
			if begins(page.Checkpoints[i].ID, word) {
				found = append(found, page.Checkpoints[i])
			}
		}
		if page.Next != "" {
			lists = append(lists, list{l.agent, string(page.Next)})
		}
	}
	names := make([]string, len(found))
	for i := range found {
		names[i] = candidate(&found[i])
	}
	i, err := one(word, "checkpoint", names, len(lists) > 0)
	if err != nil {
		return nil, err
	}
	return &found[i], nil
}

// candidate returns a line for a checkpoint in the list of matches.
func candidate(c *ckpt.Checkpoint) string { return c.ID + "  " + CheckpointName(c) }

// AgentNames returns the names of all agents.
func (a *App) AgentNames(ctx context.Context) (names []string, err error) {
	every := Paged{All: true}
	_, err = every.Read(func(before string, limit int) (ckpt.Ref, error) {
		page, err := a.Client().Agents(ctx, ckpt.AgentFilter{Before: before, Limit: limit})
		if err != nil {
			return "", err
		}
		for i := range page.Agents {
			names = append(names, page.Agents[i].Agent)
		}
		return page.Next, nil
	})
	return slices.Compact(names), err
}

// PromptID returns the id of the prompt whose id begins with a word. It does not look up a complete id.
func (a *App) PromptID(ctx context.Context, word string) (string, error) {
	return a.beginningOf(word, "prompt", func(before string) (ids []string, next ckpt.Ref, err error) {
		page, err := a.Client().Prompts(ctx, ckpt.PromptFilter{Before: before, Limit: ckpt.MaxLimit})
		if err != nil {
			return nil, "", err
		}
		for i := range page.Prompts {
			ids = append(ids, page.Prompts[i].ID+"  "+page.Prompts[i].Agent+"/"+page.Prompts[i].Run)
		}
		return ids, page.Next, nil
	})
}

// FindingID returns the id of the finding whose id begins with a word, in all runs that have an open one. It does not
// look up a complete id.
func (a *App) FindingID(ctx context.Context, word string) (string, error) {
	return a.beginningOf(word, "finding", func(before string) (ids []string, next ckpt.Ref, err error) {
		page, err := a.Client().Runs(ctx, ckpt.RunFilter{Severity: ckpt.SeverityInfo, Before: before, Limit: ckpt.DefaultLimit})
		if err != nil {
			return nil, "", err
		}
		for i := range page.Runs {
			found, err := a.findings(ctx, ckpt.DriftFilter{Agent: page.Runs[i].Agent, Run: page.Runs[i].Run, All: true, Limit: ckpt.MaxLimit})
			if err != nil {
				return nil, "", err
			}
			ids = append(ids, found...)
		}
		return ids, page.Next, nil
	})
}

func (a *App) findings(ctx context.Context, f ckpt.DriftFilter) (ids []string, err error) {
	err = EachPage("", func(before string) (string, bool, error) {
		f.Before = before
		page, err := a.Client().Drift(ctx, f)
		if err != nil {
			return "", false, err
		}
		for i := range page.Findings {
			ids = append(ids, page.Findings[i].ID+"  "+page.Findings[i].Rule+" of "+f.Agent+"/"+f.Run)
		}
		return string(page.Next), page.Next != "", nil
	})
	return ids, err
}

// beginningOf finds the one id that begins with a word, in a list of ids with descriptions.
func (a *App) beginningOf(word, what string, page func(before string) ([]string, ckpt.Ref, error)) (string, error) {
	switch {
	case ckpt.CheckID(word) == nil:
		return word, nil
	case !IsPrefix(word):
		return "", Usagef("%q is neither the id of a %s nor the beginning of one", word, what)
	}
	var found []string
	before, more := "", true
	for n := 0; n < searchPages && more; n++ {
		list, next, err := page(before)
		if err != nil {
			return "", err
		}
		for _, id := range list {
			if begins(id, word) {
				found = append(found, id)
			}
		}
		before, more = string(next), next != ""
	}
	i, err := one(word, what, found, more)
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(found[i], "  ")
	return id, nil
}

// one returns the index of the only candidate.
func one(word, what string, found []string, more bool) (int, error) {
	switch {
	case len(found) == 1:
		return 0, nil
	case len(found) > 1:
		return 0, ambiguous(word, what, found, len(found))
	case more:
		return 0, ckpt.Errorf(ckpt.CodeNotFound,
			"no %s found so far begins with %s, and more than %d lists would have to be searched: give the whole id", what, word, searchPages)
	}
	return 0, ckpt.Errorf(ckpt.CodeNotFound, "there is no %s whose id begins with %s", what, word)
}

// ambiguous lists the things that a name can mean.
func ambiguous(name, what string, list []string, n int) error {
	shown := slices.Clone(list[:min(len(list), candidates)])
	if n > candidates {
		shown = append(shown, "and more")
	}
	return &UsageError{message: fmt.Sprintf("%s is ambiguous: it matches more than one %s. Candidates:", name, what), list: shown}
}

func isNotFound(err error) bool {
	var e *ckpt.Error
	return errors.As(err, &e) && e.Code == ckpt.CodeNotFound
}
