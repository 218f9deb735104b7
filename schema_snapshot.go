package ckptsidecar

import _ "embed"

// SnapshotSchema is the JSON Schema of workflow snapshots. It is what decides:
// on import snapshots that break it are refused, and a policy may ask for it by
// the name "workflow-snapshot".
//
//go:embed workflow-snapshot.schema.json
var SnapshotSchema []byte
