package server

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// checkRestore applies the root package's rules to the fields of a request.
func checkRestore(r *ckpt.RestoreRequest) error {
	if r.Checkpoint != "" {
		if r.Kind != "" || r.Clean {
			return ckpt.Errorf(ckpt.CodeInvalid, "name a checkpoint, or ask for a kind or a clean checkpoint, not both")
		}
		if err := ckpt.CheckID(r.Checkpoint); err != nil {
			return err
		}
	}
	if r.Kind != "" {
		if err := ckpt.CheckKind(r.Kind); err != nil {
			return err
		}
	}
	if r.Run != "" {
		if err := ckpt.CheckLife(r.Run); err != nil {
			return err
		}
	}
	return ckpt.CheckReason(r.Reason)
}
