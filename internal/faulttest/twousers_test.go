//go:build unix

package faulttest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// Two users that exist nowhere else, and the group of the socket.
const (
	uidOne, uidTwo = 61001, 61002
	gidAgents      = 61000
)

// TestTwoUsers is promise 6 with real processes of two identities: both give
// their agent the same name, and neither user sees any effect of the other.
func TestTwoUsers(t *testing.T) {
	beside(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	d := NewDaemon(t, "--system", "--set", "access.socket_group=61000")
	d.Flags = append(d.Flags, "--config", emptyFile(t, d.Dir))
	if err := os.Chmod(d.Dir, 0o755); err != nil { // so that the other users can reach the socket's folder in it
		t.Fatal(err)
	}
	d.Start()
	one, two := newUser(t, d, uidOne, gidAgents), newUser(t, d, uidTwo, gidAgents)
	n := &neighbours{t: t, one: one, two: two, first: saveAs(one, "canary-of-one", 5), second: saveAs(two, "canary-of-two", 2)}
	t.Run("counts", n.counts)
	t.Run("not an administrator", n.notAnAdministrator)
	t.Run("same answers as missing", n.sameAsMissing)
	t.Run("everything of the own is still there", n.ownIsThere)
	t.Run("root", func(t *testing.T) { n.root(t, d) })
	d.Audit()
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with exit code %d", code)
	}
	d.Verify()
}

func emptyFile(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// saveAs saves states that hold a canary and returns the last checkpoint.
func saveAs(u *user, canary string, saves int) ckpt.Checkpoint {
	u.t.Helper()
	var saved ckpt.Checkpoint
	for i := range saves {
		body := fmt.Sprintf(`{"kind":"recovery","state":{"n":%d,"canary":%q},"labels":{"of":%q}}`, i, canary, canary)
		u.read(ask{"POST", "/v1/agents/assistant/checkpoints", ckpt.ContentTypeJSON, []byte(body)}, &saved)
	}
	if saved.Owner != u.Owner {
		u.t.Fatalf("the agent of %s belongs to %s", u.Owner, saved.Owner)
	}
	return saved
}

type neighbours struct {
	t             *testing.T
	one, two      *user
	first, second ckpt.Checkpoint // the newest checkpoint of each user
}

// counts: every count that a user sees covers only the user's own data.
func (n *neighbours) counts(t *testing.T) {
	for _, u := range []struct {
		*user
		saves int64
	}{{n.one, 5}, {n.two, 2}} {
		var status ckpt.Status
		u.read(ask{Method: "GET", Path: "/v1/status"}, &status)
		if status.Agents != 1 || status.Runs != 1 || status.Counts[ckpt.KindRecovery] != u.saves {
			t.Errorf("%s is told of %d agents, %d runs, %d checkpoints", u.Owner, status.Agents, status.Runs, status.Counts[ckpt.KindRecovery])
		}
		var agents ckpt.AgentPage
		u.read(ask{Method: "GET", Path: "/v1/agents"}, &agents)
		if len(agents.Agents) != 1 || agents.Agents[0].Owner != u.Owner || agents.Agents[0].Checkpoints != u.saves {
			t.Errorf("%s sees the agents %+v", u.Owner, agents.Agents)
		}
		var page ckpt.CheckpointPage
		u.read(ask{Method: "GET", Path: "/v1/agents/assistant/checkpoints"}, &page)
		if int64(len(page.Checkpoints)) != u.saves {
			t.Errorf("%s lists %d checkpoints", u.Owner, len(page.Checkpoints))
		}
	}
}

// sameAsMissing asks for the other user's things, by id and by name, and for
// things that do not exist. The answers differ only in the id.
func (n *neighbours) sameAsMissing(t *testing.T) {
	nobodys, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	theirs := n.first.ID
	asks := []ask{
		{Method: "GET", Path: "/v1/checkpoints/ID"},
		{Method: "GET", Path: "/v1/checkpoints/ID?state=false"},
		{Method: "HEAD", Path: "/v1/checkpoints/ID"},
		{Method: "GET", Path: "/v1/checkpoints/ID/state"},
		{Method: "GET", Path: "/v1/checkpoints/ID/diff/" + n.second.ID},
		{Method: "GET", Path: "/v1/checkpoints/" + n.second.ID + "/diff/ID"},
		{Method: "PATCH", Path: "/v1/checkpoints/ID", Body: []byte(`{"pinned":true}`)},
		{Method: "DELETE", Path: "/v1/checkpoints/ID"},
		{Method: "POST", Path: "/v1/agents/assistant/restore", Body: []byte(`{"checkpoint":"ID"}`)},
		{"POST", "/v1/agents/assistant/checkpoints", ckpt.ContentTypeJSON, []byte(`{"kind":"routine","state":1,"parent":"ID"}`)},
		{"POST", "/v1/agents/assistant/checkpoints?kind=routine&base=ID", "application/merge-patch+json", []byte(`{"a":1}`)},
	}
	for _, a := range asks {
		foreign, missing := n.two.do(a.about(theirs)), n.two.do(a.about(nobodys.String()))
		foreign.Body = bytes.ReplaceAll(foreign.Body, []byte(theirs), []byte("ID"))
		missing.Body = bytes.ReplaceAll(missing.Body, []byte(nobodys.String()), []byte("ID"))
		if foreign.Status != missing.Status || foreign.ContentType != missing.ContentType || !bytes.Equal(foreign.Body, missing.Body) {
			t.Errorf("%s %s: another's is told from a missing one:\n%d %s\n%d %s", a.Method, a.Path, foreign.Status, foreign.Body, missing.Status, missing.Body)
		}
		if missing.Status < 400 || missing.Status >= 500 {
			t.Errorf("%s %s: %d %s", a.Method, a.Path, missing.Status, missing.Body)
		}
	}
	// An id is taken only for its owner. A user who knows another user's id
	// learns nothing from it.
	for _, id := range []string{theirs, nobodys.String()} {
		got := n.two.do(ask{"PUT", "/v1/agents/assistant/checkpoints/" + id + "?kind=recovery", "text/plain", []byte("mine")})
		if got.Status != http.StatusCreated || bytes.Contains(got.Body, []byte("canary")) {
			t.Errorf("a save under the id %s: %d %s", id, got.Status, got.Body)
		}
		if got = n.two.do(ask{Method: "DELETE", Path: "/v1/checkpoints/" + id}); got.Status != http.StatusOK {
			t.Errorf("the delete of it: %d %s", got.Status, got.Body)
		}
	}
}

// about puts an id into a request.
func (a ask) about(id string) ask {
	a.Path = strings.ReplaceAll(a.Path, "ID", id)
	a.Body = bytes.ReplaceAll(a.Body, []byte("ID"), []byte(id))
	return a
}

// notAnAdministrator: a request that names another owner is refused, for every
// owner, and nothing that a user may see contains data of the other user.
func (n *neighbours) notAnAdministrator(t *testing.T) {
	for _, path := range []string{
		"/v1/agents?owner=*", "/v1/agents?owner=uid:0", "/v1/agents?owner=" + n.one.Owner, "/v1/agents/assistant/checkpoints?owner=" + n.one.Owner,
		"/v1/agents/assistant/export?owner=" + n.one.Owner, "/v1/status?owner=*", "/v1/audit?owner=*", "/v1/checkpoints/" + n.first.ID + "?owner=" + n.one.Owner, "/metrics",
	} {
		if got := n.two.get(path); got.Status != http.StatusForbidden {
			t.Errorf("%s as %s: %d %s", path, n.two.Owner, got.Status, got.Body)
		}
	}
	for _, path := range []string{
		"/v1/agents", "/v1/audit", "/v1/audit?agent=assistant", "/v1/agents/assistant/export", "/v1/agents/assistant/checkpoints",
		"/v1/agents/assistant/checkpoints/latest", "/v1/agents/assistant/checkpoints?label=of=canary-of-one", "/v1/status",
	} {
		got := n.two.get(path)
		for _, canary := range []string{"canary-of-one", n.one.Owner, n.first.ID, n.first.SHA256} {
			if got.Status != http.StatusOK || bytes.Contains(got.Body, []byte(canary)) {
				t.Errorf("%s as %s: %d with %s: %s", path, n.two.Owner, got.Status, canary, tail(string(got.Body), 500))
			}
		}
	}
}

// ownIsThere: nothing that the other user tried has changed anything.
func (n *neighbours) ownIsThere(t *testing.T) {
	var erased ckpt.Erased
	n.two.read(ask{Method: "DELETE", Path: "/v1/agents/assistant"}, &erased)
	if erased.Checkpoints != 2 {
		t.Errorf("the erasing took %d checkpoints", erased.Checkpoints)
	}
	var latest ckpt.Checkpoint
	n.one.read(ask{Method: "POST", Path: "/v1/agents/assistant/restore", Body: []byte(`{"reason":"still there?"}`)}, &latest)
	if latest.ID != n.first.ID || latest.Pinned {
		t.Errorf("restored %+v", latest)
	}
	var page ckpt.CheckpointPage
	n.one.read(ask{Method: "GET", Path: "/v1/agents/assistant/checkpoints"}, &page)
	if len(page.Checkpoints) != 5 {
		t.Errorf("after the neighbour erased his agent, %d checkpoints are left of 5", len(page.Checkpoints))
	}
	n.second = saveAs(n.two, "canary-of-two", 2)
}

// root sees the data of both users, by owner and by id, and the audit log
// records it.
func (n *neighbours) root(t *testing.T, d *Daemon) {
	ctx, c := context.Background(), d.Client()
	agents, err := c.Agents(ctx, ckpt.AgentFilter{})
	if err != nil || len(agents.Agents) != 2 {
		t.Fatalf("root sees %+v, %v", agents, err)
	}
	for _, ck := range []ckpt.Checkpoint{n.first, n.second} {
		if got, err := c.Checkpoint(ctx, ck.ID, true); err != nil || got.Owner != ck.Owner || !bytes.Contains(got.State, []byte("canary")) {
			t.Errorf("by id: %+v, %v", got, err)
		}
		of := &client.Client{Socket: d.Socket, Owner: ck.Owner}
		page, err := of.Checkpoints(ctx, ckpt.CheckpointFilter{Agent: "assistant"})
		of.Close()
		if err != nil || len(page.Checkpoints) == 0 || page.Checkpoints[0].ID != ck.ID {
			t.Errorf("by owner: %+v, %v", page, err)
		}
	}
	if _, err := c.Checkpoints(ctx, ckpt.CheckpointFilter{Agent: "assistant"}); ckpt.CodeOf(err) != ckpt.CodeNotFound {
		t.Errorf("root has no agent of that name: %v", err)
	}
	audit, err := c.Audit(ctx, ckpt.AuditFilter{Limit: ckpt.MaxLimit})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, row := range audit.Audit {
		if row.Who == "uid:0" && row.Owner != "uid:0" {
			seen[row.Action+" "+string(row.Owner)]++
		}
	}
	t.Logf("the audit log has of root: %v", seen)
	for _, u := range []*user{n.one, n.two} {
		if seen["admin_read "+u.Owner] == 0 || seen["admin_list "+u.Owner] == 0 {
			t.Errorf("the audit log does not say that root read and listed the agents of %s", u.Owner)
		}
	}
}
