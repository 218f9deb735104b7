package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
)

// verifying is one check of everything that an engine holds.
type verifying struct {
	*fleet.Verified
	engine *pg.Engine
	opener *seal.Opener
	own    *audit.Hashes // the audit log of this host, nil if there is none
	step   func(done, total int64)
	runs   int64 // how many runs there are in all
}

// Verify checks the audit logs of all hosts in an engine, the claims, and every state
// and document, as far as this host has the keys. It changes nothing.
func Verify(ctx context.Context, url string, c Config, step func(done, total int64)) (*fleet.Verified, error) {
	e, err := pg.Dial(ctx, url)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	v := &verifying{Verified: &fleet.Verified{Problems: []fleet.Problem{}}, engine: e, step: step}
	if v.opener, err = opener(c.ring); err != nil {
		return nil, err
	}
	if _, err := os.Stat(c.Store.Path); err == nil {
		if v.own, err = audit.OpenHashes(ctx, c.Store.Path); err != nil {
			return nil, fmt.Errorf("the audit log of this host cannot be compared: %w", err)
		}
		defer v.own.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return v.Verified, v.all(ctx)
}

func (v *verifying) all(ctx context.Context) (err error) {
	if v.runs, err = v.engine.CountRuns(ctx); err != nil {
		return err
	}
	hosts, err := v.engine.Hosts(ctx, "")
	if err != nil {
		return err
	}
	for _, h := range hosts.Hosts {
		v.Hosts++
		for _, check := range []func(context.Context, *fleet.HostShown) error{v.chain, v.agents, v.runsOf} {
			if err := check(ctx, &h); err != nil {
				return err
			}
		}
	}
	if err := v.claims(ctx); err != nil {
		return err
	}
	return v.engine.Orphans(ctx, func(kind, uid string, n int64) {
		v.Found("orphan", "", uid, fmt.Sprintf("%d %s belong to it, and it is not there", n, kind))
	})
}

// note adds a problem, unless the only reason is that this host lacks the key.
func (v *verifying) note(rule, host, subject, what string) {
	if seal.NoKey(what) {
		v.Unopened++
		return
	}
	v.Found(rule, host, subject, what)
}

// chain checks the audit log of a host.
func (v *verifying) chain(ctx context.Context, h *fleet.HostShown) error {
	chain := &fleet.Chain{}
	var archived int64
	err := v.engine.Links(ctx, h.DB, func(page []fleet.Link) error {
		for _, l := range page {
			row := fmt.Sprintf("row %d", l.N)
			v.AuditRows++
			if what := chain.Next(l); what != "" {
				v.Found("chain", h.Name, row, what)
			}
			if l.Texts == nil {
				continue
			}
			text, err := v.opener.Audit(*l.Texts, h.DB, l.N)
			if err != nil {
				v.note("chain", h.Name, row, err.Error())
			}
			if l.Action == "archive_audit" {
				archived = max(archived, archivedBy(text, l.N))
			}
		}
		return v.compare(ctx, h, page)
	})
	if err != nil {
		return err
	}
	m, err := v.engine.MarkOf(ctx, h.DB)
	if err != nil {
		return err
	}
	if what := chain.End(m); what != "" {
		v.Found("chain", h.Name, "end", what)
	}
	for _, g := range chain.Gaps {
		if err := v.gap(ctx, h, g, archived); err != nil {
			return err
		}
	}
	return nil
}

// archivedBy returns the last row that an archive has, by what row n of the audit log says about it. If the text cannot
// be opened, it can be any row before n.
func archivedBy(text string, n int64) int64 {
	var said struct{ Detail string }
	var archive struct {
		To int64 `json:"to_n"`
	}
	if json.Unmarshal([]byte(text), &said) != nil || json.Unmarshal([]byte(said.Detail), &archive) != nil {
		return n - 1
	}
	return archive.To
}

// gap checks rows that the engine lacks. A host that archives rows before it ships them never ships them. archived is
// the last row that an archive of the host has. This host also knows which of its rows it still has: it has shipped those.
func (v *verifying) gap(ctx context.Context, h *fleet.HostShown, g fleet.Gap, archived int64) error {
	var here int64
	if v.own != nil && v.own.Database == h.DB {
		var err error
		if here, err = v.own.Count(ctx, g.From, g.To); err != nil {
			return err
		}
	}
	if g.To <= archived && here == 0 {
		v.Archived += g.To - g.From + 1
		return nil
	}
	v.Found("chain", h.Name, fmt.Sprintf("row %d", g.To+1), fmt.Sprintf("rows %d to %d are missing before it", g.From, g.To))
	return nil
}

// compare compares rows with the audit log of this host, if h is this host.
func (v *verifying) compare(ctx context.Context, h *fleet.HostShown, page []fleet.Link) error {
	if v.own == nil || v.own.Database != h.DB {
		return nil
	}
	var rows []int64
	for _, l := range page {
		rows = append(rows, l.N)
	}
	here, err := v.own.Of(ctx, rows)
	if err != nil {
		return err
	}
	for _, l := range page {
		hash, is := here[l.N]
		if is {
			v.Compared++
		}
		if is && hash != l.Hash {
			v.Found("chain", h.Name, fmt.Sprintf("row %d", l.N), "its hash is not that of the same row of this host's audit log")
		}
	}
	return nil
}

func (v *verifying) agents(ctx context.Context, h *fleet.HostShown) error {
	agents, err := v.engine.AgentsOf(ctx, h.DB)
	if err != nil {
		return err
	}
	for i := range agents {
		a := &agents[i]
		subject := a.Name + " of " + a.Owner
		if err := v.opener.Agent(a); err != nil {
			v.note("agent", h.Name, subject, err.Error())
		} else if !json.Valid([]byte(a.Doc)) {
			v.Found("agent", h.Name, subject, "its document is no JSON")
		}
	}
	return nil
}

func (v *verifying) runsOf(ctx context.Context, h *fleet.HostShown) error {
	runs, err := v.engine.RunsOf(ctx, h.DB)
	if err != nil {
		return err
	}
	for i := range runs {
		if err := v.run(ctx, h, &runs[i]); err != nil {
			return err
		}
		v.step(v.Runs, v.runs)
	}
	return nil
}

func (v *verifying) run(ctx context.Context, h *fleet.HostShown, r *pg.HeldRun) error {
	v.Runs++
	subject := fleet.RunName(r.Owner, r.Agent, r.Name)
	if err := v.opener.RunDoc(&r.LostRun); err != nil {
		v.note("run", h.Name, subject, err.Error())
	} else if !json.Valid([]byte(r.Doc)) {
		v.Found("run", h.Name, subject, "its document is no JSON")
	}
	if err := v.engine.Fill(ctx, &r.LostRun); err != nil {
		return err
	}
	v.Checkpoints, v.Rows = v.Checkpoints+int64(len(r.Checkpoints)), v.Rows+int64(len(r.Rows))
	v.opener.Run(&r.LostRun)
	journal.CheckLost(&r.LostRun, func(kind, id, what string) {
		rule := "row"
		if kind == "checkpoint" {
			rule = kind
		}
		v.note(rule, h.Name, subject+", "+kind+" "+id, what)
	})
	return nil
}

// claims checks the claims of each run against one another, the run, and the chains.
func (v *verifying) claims(ctx context.Context) error {
	all, err := v.engine.Claims(ctx)
	if err != nil {
		return err
	}
	v.Claims = int64(len(all))
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].RunUID == all[0].RunUID {
			n++
		}
		for _, what := range fleet.CheckClaims(all[:n]) {
			v.Found("claim", all[n-1].To, "run "+all[0].RunUID, what)
		}
		all = all[n:]
	}
	return nil
}
