package console

import (
	"slices"
	"testing"
)

// TestChangesOfCheckpointsSayWhy sends each form about a checkpoint, and finds
// the reason in the audit log of a real daemon.
func TestChangesOfCheckpointsSayWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	saved := w.save("coder", "one", `{"n": 1}`)
	for _, c := range []struct{ name, what, action, field, value string }{
		{"pin", "pin", "change", "", ""},
		{"unpin", "unpin", "change", "", ""},
		{"label", "label", "change", "labels", "stage=done"},
		{"fork", "fork", "start_run", "name", "two"},
		{"fork with another state", "fork", "change", "name", "three"},
	} {
		why := "because of " + c.name
		values, page := w.form("ask/" + c.what + "?" + w.formOf(saved, "coder", "one"))
		if values.Get("key") == "" {
			t.Fatalf("%s: there is no form: %s", c.name, page)
		}
		if c.field != "" {
			values.Set(c.field, c.value)
		}
		if c.value == "three" {
			values.Set("state", `{"n": 99}`)
		}
		if status, text := w.act(c.what, values); status != 422 {
			t.Errorf("%s without a reason is answered with %d: %s", c.name, status, text)
		}
		values.Set("reason", why)
		if status, text := w.act(c.what, values); status != 200 {
			t.Errorf("%s is answered with %d: %s", c.name, status, text)
			continue
		}
		if all := w.reasons(); !slices.Contains(all[c.action], why) {
			t.Errorf("%s: the audit log does not say why: %q", c.name, all)
		}
	}
}

// TestPinTwiceIsPinned: if the form of a pin is sent twice, as by a double
// click, the checkpoint is pinned.
func TestPinTwiceIsPinned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	saved := w.save("coder", "one", `{"n": 1}`)
	values, _ := w.form("ask/pin?" + w.formOf(saved, "coder", "one"))
	values.Set("reason", "it is good")
	for range 2 {
		if status, text := w.act("pin", values); status != 200 {
			t.Fatalf("the form is answered with %d: %s", status, text)
		}
	}
	cp, err := w.client.Checkpoint(t.Context(), saved.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	if !cp.Pinned {
		t.Error("the second form has undone the first")
	}
}
