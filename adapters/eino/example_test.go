package eino_test

import (
	"context"

	"github.com/ckptsidecar/ckptsidecar/adapters/eino"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/cloudwego/eino/compose"
)

// The functions below are the snippets of docs/ADAPTERS.md. TestDocs compares
// them with the document. A child process runs them: see TestInterruptedGraph.

func compiled(ctx context.Context, graph *compose.Graph[string, string], sidecar *client.Client) (compose.Runnable[string, string], error) {
	store := &eino.Store{Agent: sidecar.Agent("reviewer")}
	return graph.Compile(ctx, compose.WithCheckPointStore(store), compose.WithInterruptBeforeNodes([]string{"publish"}))
}

func publish(ctx context.Context, runnable compose.Runnable[string, string], article string) (string, error) {
	text, err := runnable.Invoke(ctx, article, compose.WithCheckPointID(article))
	if info, ok := compose.ExtractInterruptInfo(err); ok {
		return "", &waiting{info.BeforeNodes} // ask somebody, and invoke it again, in this process or another one
	}
	return text, err
}

// waiting says that a person must look first.
type waiting struct{ nodes []string }

func (w *waiting) Error() string { return "waiting before " + w.nodes[0] }
