package main

import (
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func TestVersionSaysWhatDiffersTooMuch(t *testing.T) {
	t.Parallel()
	daemon := func(version string, api, schema int) *ckpt.Version {
		return &ckpt.Version{Name: "ckptsidecar", Version: version, API: api, Schema: schema}
	}
	const schema = ckpt.SchemaVersion
	for _, tt := range []struct {
		mine   string
		theirs *ckpt.Version
		want   string // part of the sentence; "" for none
	}{
		{"v1.4.0", daemon("v1.4.7", 1, schema), ""},
		{"1.4.0", daemon("v1.4.0", 1, schema), ""},
		{"devel", daemon("v1.4.7", 1, schema), ""},
		{"v1.4.0", daemon("v1.5.0", 1, schema), "the daemon is v1.5.0"},
		{"v1.4.0", daemon("v1.4.0", 2, schema), "the daemon speaks version 2"},
		{"v1.4.0", daemon("v1.4.0", 1, schema+1), "update this program"},
		{"v1.4.0", daemon("v1.4.0", 1, schema-1), "restart or update the daemon"},
	} {
		got := tooDifferent(tt.mine, tt.theirs)
		if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s and %+v: %q, want %q", tt.mine, tt.theirs, got, tt.want)
		}
	}
}
