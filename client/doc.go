// Package client is ckptsidecar for agents written in Go.
//
//	var sidecar client.Client
//	agent := sidecar.Agent("fixer")
//	agent.Save(ctx, state)
//
// The zero Client is ready to use: it finds the daemon by itself. A [Run] is one execution that survives its
// process. It says where to continue, sends heartbeats for the owner, and makes steps and operations happen once.
//
//	err := agent.Run(ctx, client.RunOptions{Name: "nightly"}, func(ctx context.Context, run *client.Run) error {
//		var state State
//		if _, err := run.Restore(&state); err != nil {
//			return err
//		}
//		page, err := client.Step(ctx, run, "fetch", func(ctx context.Context) (Page, error) { return fetch(ctx) })
//		…
//		return run.Save(ctx, state)
//	})
//
// # When the daemon is away
//
// A call is repeated for [Client.Deadline]. After that it returns an error. With [Client.FailOpen], a write goes
// into a folder of the user instead (docs/SPOOL.md), and the agent continues. The next client sends the waiting
// writes in order, and each of them once. Errors about the agent itself are returned at once, above all
// ckptsidecar.CodeFenced: its run was taken over.
//
// # What this package may import
//
// The standard library and google/uuid; this project's root package, internal/ipc/client, internal/jsontext and
// internal/osfile. No internal type may be in an exported signature.
package client
