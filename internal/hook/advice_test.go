package hook

import (
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestAWarningAboutTheStateNamesTheWayBack: the model is told of the checkpoint from before a fault, also if it is a
// warning, and nothing of a finding that is info alone.
func TestAWarningAboutTheStateNamesTheWayBack(t *testing.T) {
	v := &ckpt.DriftVerdict{Verdict: ckpt.SeverityWarn, Clean: "c4", Findings: []ckpt.Finding{
		{Rule: "lost_keys", Severity: ckpt.SeverityWarn, Message: "The state has lost 1 top-level key.", Advice: "Save it again."},
		{Rule: "context_age", Severity: ckpt.SeverityInfo, Message: "The context is old."},
	}}
	said := adviceOf(ckpt.RunRef{Agent: "a"}, v)
	for _, want := range []string{"Drift, warn (lost_keys)", "ckptsidecar show c4"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in %q", want, said)
		}
	}
	if strings.Contains(said, "context_age") || strings.Contains(said, "Stop") {
		t.Errorf("%q", said)
	}
	v.Findings = v.Findings[1:]
	if said := adviceOf(ckpt.RunRef{Agent: "a"}, v); said != "" {
		t.Errorf("without a warning: %q", said)
	}
}
