package ckptsidecar

import _ "embed"

// SnapshotSchema is the JSON Schema of workflow snapshots: it accepts what a snapshot
// manager accepts. A policy can name it "workflow-snapshot". An import also accepts
// looser forms, such as those of other versions.
//
//go:embed workflow-snapshot.schema.json
var SnapshotSchema []byte
