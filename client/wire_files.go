package client

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// MissingContents returns which contents of files an agent does not have, at most 10,000 in one
// call. The contents that it has stay for an hour.
func (w *Wire) MissingContents(ctx context.Context, agent string, sums []string) (*ckpt.ContentsMissing, error) {
	return w.client.MissingContents(ctx, agent, sums)
}

// PutContents stores contents of files, at most 64 MiB in one call. It may be repeated: it does not
// store existing contents again.
func (w *Wire) PutContents(ctx context.Context, agent string, contents []ckpt.FileContent) (*ckpt.ContentsStored, error) {
	return w.client.PutContents(ctx, agent, contents)
}

// PutTree stores a tree of files. If contents are missing, the error has the code files_missing and
// names them.
func (w *Wire) PutTree(ctx context.Context, r ckpt.TreeRequest) (*ckpt.TreeStored, error) {
	return w.client.PutTree(ctx, r)
}

// AttachTrees gives a saved checkpoint its trees: once, and within a minute of the save.
func (w *Wire) AttachTrees(ctx context.Context, r ckpt.AttachRequest) (ck *ckpt.Checkpoint, replayed bool, err error) {
	return w.client.AttachTrees(ctx, r)
}

// Files lists one page of the files of a checkpoint.
func (w *Wire) Files(ctx context.Context, f ckpt.FilesFilter) (*ckpt.FilesPage, error) {
	return w.client.Files(ctx, f)
}

// FilesDiff returns how the files of two checkpoints differ.
func (w *Wire) FilesDiff(ctx context.Context, f ckpt.FilesDiffFilter) (*ckpt.FilesDiff, error) {
	return w.client.FilesDiff(ctx, f)
}

// Content reads the content of a file.
func (w *Wire) Content(ctx context.Context, agent, sum string) ([]byte, error) {
	return w.client.Content(ctx, agent, sum)
}
