package doctor

import (
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestClosedConnectionsAreNamed: doctor says that connections for spans were closed, because exporters only see resets.
func TestClosedConnectionsAreNamed(t *testing.T) {
	o := &ckpt.OTLPStatus{Enabled: true, Spans: ckpt.SpanCounts{Step: 3}}
	if found := lookSpans(o); len(found) != 1 {
		t.Errorf("without closed connections: %+v", found)
	}
	o.Closed = 944
	found := lookSpans(o)
	if len(found) != 2 || !strings.Contains(found[0].What, "944 connections") || found[0].Do == "" {
		t.Errorf("%+v", found)
	}
}
