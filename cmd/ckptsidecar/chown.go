package main

import (
	"context"
	"fmt"
	"os/user"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

type chownCmd struct {
	From   string `arg:"" help:"Who has the agents: uid:1002, 1002, a user's name, or a SID."`
	To     string `arg:"" help:"Who gets them."`
	Agent  string `help:"Only this agent. Default: all of them." placeholder:"NAME"`
	DryRun bool   `help:"Change nothing, and say what would move."`
	Force  bool   `help:"Move agents even if a run's owner is alive. That process then writes to a new agent of its own."`
	cli.ReasonFlag
}

// Help returns the text that `chown --help` adds.
func (c *chownCmd) Help() string {
	return "For administrators. All agents move in one transaction, or none. Nothing moves where the new owner has an agent of the same name. " +
		"Each agent keeps its policy. The audit log is not rewritten: it gets two rows for each agent, give_agent and receive_agent. " +
		"docs/HOWTO.md walks through the move to another machine."
}

func (c *chownCmd) Run(ctx context.Context, a *app) error {
	r := ckpt.ChownRequest{Agent: c.Agent, Force: c.Force, DryRun: c.DryRun, Reason: c.Reason}
	var err error
	if r.From, err = ownerNamed(c.From); err != nil {
		return err
	}
	if r.To, err = ownerNamed(c.To); err != nil {
		return err
	}
	if err := cli.Checked(r.Check()); err != nil {
		return err
	}
	done, _, err := client.Operator{Client: a.Client()}.Chown(ctx, r, "")
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(done)
	}
	t := term.NewTable("AGENT", ">RUNS", ">CHECKPOINTS", ">STORED", ">FILES")
	for _, m := range done.Agents {
		t.Add(m.Agent, fmt.Sprint(m.Runs), fmt.Sprint(m.Checkpoints), term.Bytes(m.StoredBytes), filesText(m.FilesBytes))
	}
	t.Write(a.Stdout, a.Out)
	verb := "moved"
	if done.DryRun {
		verb = "would move"
	}
	a.Tell("%s %s from %s to %s", term.Count(len(done.Agents), "agent"), verb, done.From, done.To)
	return nil
}

// ownerNamed returns the owner that a word names. The word can be an owner as the daemon writes it,
// the number of a user, or the name of a user of this machine.
func ownerNamed(word string) (string, error) {
	if ckpt.IsOwner(word) {
		return word, nil
	}
	if number := "uid:" + word; ckpt.IsOwner(number) {
		return number, nil
	}
	u, err := user.Lookup(word)
	if err != nil || strings.HasPrefix(word, "uid:") {
		return "", cli.Usagef("%q is neither uid:NUMBER, nor a SID, nor a user of this machine", word)
	}
	if number := "uid:" + u.Uid; ckpt.IsOwner(number) {
		return number, nil
	}
	return u.Uid, nil // on Windows: a SID
}
