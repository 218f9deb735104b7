package host

import (
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestReleaseOfARunThatBegins: a run that begins while it is released stays with its host.
func TestReleaseOfARunThatBegins(t *testing.T) {
	t.Parallel()
	_, url := fleetEngine(t)
	one, two := roamingHost(t, url, "one"), roamingHost(t, url, "two")
	one.policy("a", fleetPolicy)
	if a := one.save("a", ""); a.status != 201 {
		t.Fatalf("%+v", a)
	}
	if a := one.ask("POST", "/v1/agents/a/runs/main/end", `{"status":"interrupted"}`); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	waitShipped(t, one)
	c := claimantOf(one.store, url, "one")
	c.url = func() (string, error) { // after the run was looked at
		if p := one.resume("a", `{}`); !p.Claimed {
			t.Errorf("the run begins: %+v", p)
		}
		if err := one.s.Began(t.Context(), fleetUser, "a", ""); err != nil {
			t.Error(err)
		}
		return url, nil
	}
	if _, err := c.Release(t.Context(), fleetUser, ckpt.RunRef{Agent: "a"}); ckpt.CodeOf(err) != ckpt.CodeConflict {
		t.Errorf("the release answers %v", err)
	}
	if p := two.resume("a", `{}`); p.status != 409 {
		t.Errorf("another host takes a running run: %+v", p)
	}
}
