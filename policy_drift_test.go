package ckptsidecar_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// TestPolicyIsReadOverTheDefaults: a member that is left out, or null for a
// list, has the default. A policy that is written reads back the same.
func TestPolicyIsReadOverTheDefaults(t *testing.T) {
	for _, text := range []string{`{}`, `{"ignore_tools":null,"rules":null,"shared_keys":null,"detectors":null,"schema":null,"budget":{}}`} {
		p, err := wellformed.ParsePolicy([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ckpt.DefaultPolicy(), p); diff != "" {
			t.Errorf("%s:\n%s", text, diff)
		}
	}
	full := ckpt.DefaultPolicy()
	full.Sensitivity, full.SchemaMode, full.Schema = ckpt.SensitivityHigh, ckpt.SchemaReport, ckpt.JSON(`{"type":"object"}`)
	full.Detectors = map[string]ckpt.Detector{"repeat": {Tier: ckpt.TierWarn, Warn: 2.5, WarnWindow: 9, Critical: 7, CriticalWindow: 30, Cooldown: 4}}
	full.IgnoreTools, full.SharedKeys = []string{"sleep"}, []string{"/a~1b/0"}
	full.Budget = ckpt.Budget{Steps: 1, Tokens: 2, CostUSD: 0.5, WallTime: ckpt.Duration(ckpt.Day)}
	full.NoProgressSteps, full.NoProgressTime = 5, ckpt.Duration(ckpt.Day)
	full.Rules = []ckpt.Rule{{Name: "r", When: "true", Severity: ckpt.SeverityInfo, Message: "m"}}
	text, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wellformed.ParsePolicy(text); err != nil || cmp.Diff(full, got) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(full, got))
	}
}

// TestBadPoliciesAreRefusedByName: each mistake is named with its place.
func TestBadPoliciesAreRefusedByName(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for text, place := range map[string]string{
		`{"sensitivity":"loud"}`:                            "sensitivity",
		`{"schema_mode":"maybe"}`:                           "schema_mode",
		`{"detectors":{"repeat":{"tier":"on"}}}`:            "detectors.repeat.tier",
		`{"detectors":{"repeat":{"warn":-1}}}`:              "detectors.repeat.warn",
		`{"detectors":{"repeat":{"critical_window":1001}}}`: "detectors.repeat.critical_window",
		`{"detectors":{"repeat":{"warm":1}}}`:               "/detectors/repeat",
		`{"detectors":{"no rule":{}}}`:                      "detectors",
		`{"ignore_tools":["a",""]}`:                         "ignore_tools[1]",
		`{"ignore_tools":"a"}`:                              "/ignore_tools",
		`{"no_progress_steps":-1}`:                          "no_progress_steps",
		`{"no_progress_time":"1ms"}`:                        "no_progress_time",
		`{"checkpoint_interval":"31d"}`:                     "checkpoint_interval",
		`{"refresh_after":-1}`:                              "refresh_after",
		`{"settle":"0s"}`:                                   "settle",
		`{"budget":{"steps":-1}}`:                           "budget.steps",
		`{"budget":{"tokens":-1}}`:                          "budget.tokens",
		`{"budget":{"cost_usd":-0.5}}`:                      "budget.cost_usd",
		`{"budget":{"wall_time":"-1s"}}`:                    "budget.wall_time",
		`{"budget":{"dollars":1}}`:                          "/budget",
		`{"schema":7}`:                                      "schema",
		`{"shared_keys":["a"]}`:                             "shared_keys[0]",
		`{"shared_keys":["/a","/a"]}`:                       "shared_keys[1]",
		`{"shared_keys":["/a~2"]}`:                          "shared_keys[0]",
		`{"rules":[{"name":"","when":"true","severity":"info","message":"m"}]}`:                                                             "rules[0]",
		`{"rules":[{"name":"a","when":" ","severity":"info","message":"m"}]}`:                                                               "rules[0]",
		`{"rules":[{"name":"a","when":"` + long + `","severity":"info","message":"m"}]}`:                                                    "rules[0]",
		`{"rules":[{"name":"a","when":"true","severity":"none","message":"m"}]}`:                                                            "rules[0]",
		`{"rules":[{"name":"a","when":"true","severity":"info","message":"m"},{"name":"a","when":"true","severity":"info","message":"m"}]}`: "rules[1]",
		`{"rules":[{"name":"a","where":"true"}]}`:                                                                                           "/rules/0",
	} {
		_, err := wellformed.ParsePolicy([]byte(text))
		if ckpt.CodeOf(err) != ckpt.CodeInvalid || !strings.Contains(err.Error(), place) {
			t.Errorf("%.80s: %v, want a word about %s", text, err, place)
		}
	}
}
