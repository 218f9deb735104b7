package ckptsidecar_test

import (
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// TestPolicyOfTheFleet: settings that are not set follow from the others, and
// no policy can allow two owners of one run.
func TestPolicyOfTheFleet(t *testing.T) {
	for _, c := range []struct {
		durability ckpt.Durability
		takeover   ckpt.Takeover
		lost       ckpt.OnLeaseLost
		want       string // takeover and on_lease_lost, or the expected error
	}{
		{ckpt.DurabilityLocal, "", "", "manual continue"},
		{ckpt.DurabilityFleet, "", "", "auto stop"},
		{ckpt.DurabilityLocal, ckpt.TakeoverAuto, "", "auto stop"},
		{ckpt.DurabilityFleet, ckpt.TakeoverNever, "", "never continue"},
		{ckpt.DurabilityFleet, ckpt.TakeoverManual, ckpt.LeaseLostStop, "manual stop"},
		{ckpt.DurabilityLocal, ckpt.TakeoverAuto, ckpt.LeaseLostContinue, "two owners"},
		{ckpt.DurabilityFleet, "", ckpt.LeaseLostContinue, "two owners"},
		{ckpt.DurabilityLocal, "soon", "", "auto, manual or never"},
		{ckpt.DurabilityLocal, "", "pause", "stop or continue"},
	} {
		p := ckpt.PolicyToRead()
		p.Durability, p.Takeover, p.OnLeaseLost = c.durability, c.takeover, c.lost
		if err := p.Check(); err != nil {
			if ckpt.CodeOf(err) != ckpt.CodeInvalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		p.Fill()
		if got := string(p.Takeover) + " " + string(p.OnLeaseLost); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		text, err := wellformed.PolicyText(p)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := wellformed.ParsePolicy(text); err != nil || back.Takeover != p.Takeover || back.OnLeaseLost != p.OnLeaseLost {
			t.Errorf("%+v: as text it is %s, which reads %s %s: %v", c, text, back.Takeover, back.OnLeaseLost, err)
		}
	}
}
