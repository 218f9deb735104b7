package archive

import (
	"context"
	"io"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// importFiles imports the files of the agents that have at least one imported run. Contents and
// trees that no checkpoint names in the end are removed by the usual sweep.
func (im *importing) importFiles(ctx context.Context) error {
	var waiting []*ckpt.FileContent
	size := 0
	var of *agentSeen
	flush := func() error {
		if len(waiting) == 0 {
			return nil
		}
		at := 0
		_, err := im.store.files.KeepContents(ctx, im.scope, of.target, func() (*ckpt.FileContent, error) {
			if at == len(waiting) {
				return nil, io.EOF
			}
			at++
			return waiting[at-1], nil
		})
		waiting, size = nil, 0
		return err
	}
	err := im.contents.each(im.aside, func(l *exportLine, a *agentSeen) error {
		if !slices.ContainsFunc(a.order, func(r *runSeen) bool { return !r.present }) {
			return nil
		}
		if l.Type == lineContent {
			content, err := readContent(l)
			if err != nil {
				return err
			}
			waiting, size, of = append(waiting, content), size+len(content.Data), a
			if size < importBytesAtOnce {
				return nil
			}
		}
		if err := flush(); err != nil {
			return err
		}
		switch l.Type {
		case lineTree:
			return im.importTree(ctx, l, a)
		case lineTrees:
			return im.importTrees(ctx, l, a)
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	return err
}

func (im *importing) importTree(ctx context.Context, l *exportLine, a *agentSeen) error {
	row, err := readTree(l)
	if err != nil {
		return err
	}
	row.Agent = a.target
	stored, err := im.store.files.PutTree(ctx, im.scope, row.TreeRequest)
	if err == nil && stored.ID != row.ID {
		err = ckpt.Errorf(ckpt.CodeInvalid, "the files of the tree %s in the export do not match its id", row.ID)
	}
	return err
}

func (im *importing) importTrees(ctx context.Context, l *exportLine, a *agentSeen) error {
	r := a.runs[l.Run]
	if r == nil || r.present {
		return nil
	}
	row, err := readTrees(l)
	if err != nil {
		return err
	}
	return im.add(ctx, weightRow, int64(len(l.Row)), func(tx *ledger.Tx) error {
		agent, err := im.target(tx, a)
		if err != nil {
			return err
		}
		id, err := im.here(tx, agent, row.Checkpoint)
		if err != nil {
			return err
		}
		return im.store.files.NameImported(tx, agent, id, row.Trees)
	})
}
