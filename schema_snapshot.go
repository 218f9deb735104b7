package ckptsidecar

import _ "embed"

// SnapshotSchema is the JSON Schema of workflow snapshots: it accepts what a
// snapshot manager accepts. A policy may ask for it by the name
// "workflow-snapshot". An import takes looser forms as well, such as those of
// other versions.
//
//go:embed workflow-snapshot.schema.json
var SnapshotSchema []byte
