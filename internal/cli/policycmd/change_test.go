package policycmd

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// changedPolicy applies changePolicy to the settings of a policy, and returns a
// policy.
func changedPolicy(old ckpt.Policy, changes []string) (ckpt.Policy, error) {
	text, err := wellformed.PolicyText(old)
	if err != nil {
		return ckpt.Policy{}, err
	}
	own, err := changePolicy(text, changes)
	if err != nil {
		return ckpt.Policy{}, err
	}
	return wellformed.ParsePolicy(own)
}

func TestChangePolicy(t *testing.T) {
	got, err := changedPolicy(ckpt.DefaultPolicy(), []string{"routine_keep=10", "recovery_keep=14d", "max_bytes=2MiB", "secrets=off", "ended_keep=1h"})
	if err != nil {
		t.Fatal(err)
	}
	want := ckpt.DefaultPolicy()
	want.RoutineKeep, want.MaxBytes, want.Secrets = 10, 2<<20, ckpt.SecretsOff
	want.RecoveryKeep, want.EndedKeep = ckpt.Duration(14*ckpt.Day), ckpt.Duration(time.Hour)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestChangePolicyInside: nested settings are named with points, lists are
// written with commas, and nothing after the = means the default.
func TestChangePolicyInside(t *testing.T) {
	old := ckpt.DefaultPolicy()
	old.Budget.Steps = 9
	old.Detectors = map[string]ckpt.Detector{"cycle": {Tier: ckpt.TierOff}, "stale": {Critical: 7, Cooldown: 3}}
	got, err := changedPolicy(old, []string{
		"detectors.repeat.tier=off", "detectors.my.rule.warn=2.5", "detectors.cycle=", "detectors.stale.cooldown=", "budget.wall_time=2h", "budget.steps=",
		"ignore_tools=sleep, wait", `shared_keys=["/a,b"]`, "sensitivity=low", `rules=[{"name":"r","when":"true","severity":"info","message":"m"}]`, "schema=workflow-snapshot",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := ckpt.DefaultPolicy()
	want.Detectors = map[string]ckpt.Detector{"repeat": {Tier: ckpt.TierOff}, "my.rule": {Warn: 2.5}, "stale": {Critical: 7}}
	want.Budget.WallTime, want.Sensitivity = ckpt.Duration(2*time.Hour), ckpt.SensitivityLow
	want.IgnoreTools, want.SharedKeys = []string{"sleep", "wait"}, []string{"/a,b"}
	want.Rules, want.Schema = []ckpt.Rule{{Name: "r", When: "true", Severity: "info", Message: "m"}}, ckpt.JSON(`"workflow-snapshot"`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var set map[string]json.RawMessage
	text, err := changePolicy(ckpt.JSON(`{"detectors":{"repeat":null}}`), []string{"budget=null", "budget.steps=5", "detectors.repeat.warn=3"})
	if err == nil {
		err = json.Unmarshal(text, &set)
	}
	if err != nil || string(set["budget"]) != `{"steps":5}` || string(set["detectors"]) != `{"repeat":{"warn":3}}` {
		t.Errorf("what was null is now %s: %v", text, err)
	}
	for _, bad := range []string{"recovery_keep=5", "ended_keep=0", "budget.wall_time=60", "detector.x=1", "detectors.repeat.tear=1", "routine_keep.x=1", "budget.steps=many", "settle=never", "nothing"} {
		if _, err := changedPolicy(old, []string{bad}); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}
