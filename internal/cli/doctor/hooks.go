package doctor

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// lookHooks looks whether the hooks of coding agents are complete and trusted, and says when one last came.
func lookHooks(ctx context.Context, p *patient) []finding {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	var found []finding
	for _, product := range hook.Products {
		file := hook.SettingsFile(product, home, p.app.Env)
		settings, err := os.ReadFile(file)
		if err != nil {
			continue // the product is not used
		}
		if f := hooksOf(ctx, p, product, file, settings); f != nil {
			found = append(found, *f)
		}
	}
	return found
}

// hooksOf returns what is to be said of the hooks of one product, nil if it has none.
func hooksOf(ctx context.Context, p *patient, product hook.Product, file string, settings []byte) *finding {
	installed, missing := hook.Installed(product, settings)
	f := ok("%s: %s installed in %s, %s", product, term.Count(int64(installed), "hook"), file, lastOf(ctx, p, product))
	switch {
	case installed == 0:
		return nil
	case len(missing) > 0:
		f = warn("ckptsidecar hook install --for "+string(product), "%s: no hook for %s in %s", product, strings.Join(missing, ", "), file)
	case product == hook.Codex && !trusted(filepath.Dir(file)):
		f = warn("open /hooks in Codex and trust them", "codex: the hooks in %s are not trusted, and Codex skips them without a word", file)
	}
	return &f
}

// trusted reports whether Codex has noted that its user trusts a hook.
func trusted(folder string) bool {
	text, err := os.ReadFile(filepath.Join(folder, "config.toml"))
	return err == nil && bytes.Contains(text, []byte("trusted_hash"))
}

// lastOf says when a hook of a product last came.
func lastOf(ctx context.Context, p *patient, product hook.Product) string {
	if p.status == nil {
		return "and no daemon answers them"
	}
	var last ckpt.Time
	page, err := p.app.Client().Runs(ctx, ckpt.RunFilter{Labels: ckpt.Labels{"product": string(product)}, Limit: 1})
	if err != nil {
		return cli.MessageOf(err)
	}
	for i := range page.Runs {
		last = page.Runs[i].UpdatedAt
	}
	if last.IsZero() {
		return "none has come yet"
	}
	return "the last session was heard of at " + last.String()
}
