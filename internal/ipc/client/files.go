package client

import (
	"context"
	"net/http"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// MissingContents returns which contents an agent does not have, at most 10,000 in one
// call. The contents that it has stay for an hour.
func (c *Client) MissingContents(ctx context.Context, agent string, sums []string) (*ckpt.ContentsMissing, error) {
	a, err := filesAsk(agent, "contents/missing", ipc.ContentsBody{SHA256: sums})
	return fetchFiles[ckpt.ContentsMissing](ctx, c, a, err)
}

// PutContents stores contents, at most 64 MiB in one call. It can be repeated: existing
// contents are not stored again.
func (c *Client) PutContents(ctx context.Context, agent string, contents []ckpt.FileContent) (*ckpt.ContentsStored, error) {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return nil, err
	}
	var body []byte
	for i := range contents {
		body = AppendContent(body, &contents[i])
	}
	a := &ask{
		method: http.MethodPost, path: agentPath(agent) + "/contents", body: body, contentType: ipc.TypeContents,
		write: true, repeatable: true,
	}
	return fetchFiles[ckpt.ContentsStored](ctx, c, a, nil)
}

// AppendContent appends a content in the form of the body of PutContents.
func AppendContent(b []byte, content *ckpt.FileContent) []byte {
	was := content.Was
	if was == "" {
		was = "-"
	}
	b = append(append(b, content.SHA256...), ' ')
	b = append(strconv.AppendInt(b, int64(len(content.Data)), 10), ' ')
	b = append(append(b, was...), '\n')
	return append(b, content.Data...)
}

// PutTree stores a tree. If contents are missing, the error has the code files_missing
// and names them.
func (c *Client) PutTree(ctx context.Context, r ckpt.TreeRequest) (*ckpt.TreeStored, error) {
	a, err := filesAsk(r.Agent, "trees", r)
	return fetchFiles[ckpt.TreeStored](ctx, c, a, err)
}

// AttachTrees adds trees to a saved checkpoint: once, and within a minute of the save.
func (c *Client) AttachTrees(ctx context.Context, r ckpt.AttachRequest) (ck *ckpt.Checkpoint, replayed bool, err error) {
	if err := ckpt.CheckID(r.Checkpoint); err != nil {
		return nil, false, err
	}
	a, err := keyedAsk("/v1/checkpoints/"+r.Checkpoint+"/tree", r, r.IdempotencyKey)
	return fetchKeyed[ckpt.Checkpoint](ctx, c, a, err)
}

// Files lists one page of the files of a checkpoint.
func (c *Client) Files(ctx context.Context, f ckpt.FilesFilter) (*ckpt.FilesPage, error) {
	if err := ckpt.CheckID(f.Checkpoint); err != nil {
		return nil, err
	}
	a := &ask{method: http.MethodGet, path: "/v1/checkpoints/" + f.Checkpoint + "/files", repeatable: true}
	a.query.add("tree", f.Tree)
	a.query.add("after", f.After)
	a.query.addLimit(f.Limit)
	return fetchFiles[ckpt.FilesPage](ctx, c, a, nil)
}

// FilesDiff returns how the files of two checkpoints differ.
func (c *Client) FilesDiff(ctx context.Context, f ckpt.FilesDiffFilter) (*ckpt.FilesDiff, error) {
	for _, id := range []string{f.From, f.To} {
		if err := ckpt.CheckID(id); err != nil {
			return nil, err
		}
	}
	a := &ask{method: http.MethodGet, path: "/v1/checkpoints/" + f.From + "/files/" + f.To, repeatable: true}
	a.query.add("root", f.Root)
	a.query.add("after", f.After)
	a.query.addLimit(f.Limit)
	return fetchFiles[ckpt.FilesDiff](ctx, c, a, nil)
}

// Content reads the content of a file.
func (c *Client) Content(ctx context.Context, agent, sum string) ([]byte, error) {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return nil, err
	}
	if err := ckpt.CheckSHA256("hash of the content", sum); err != nil {
		return nil, err
	}
	ans, err := c.do(ctx, &ask{method: http.MethodGet, path: agentPath(agent) + "/contents/" + sum, repeatable: true})
	if err != nil {
		return nil, err
	}
	return ans.body, nil
}

// filesAsk returns a POST that can be repeated without any effect.
func filesAsk(agent, part string, body any) (*ask, error) {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return nil, err
	}
	a, err := jsonAsk(http.MethodPost, agentPath(agent)+"/"+part, body)
	if err != nil {
		return nil, err
	}
	a.repeatable = true
	return a, nil
}

func fetchFiles[T any](ctx context.Context, c *Client, a *ask, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	answer := new(T)
	_, err = c.fetch(ctx, a, answer)
	return orNil(answer, err)
}
