package server

import (
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// checkRestore applies the root package's rules to the fields of a request.
func checkRestore(r *ckpt.RestoreRequest) error {
	if r.Checkpoint != "" {
		if r.Kind != "" || r.Clean {
			return ckpt.Errorf(ckpt.CodeInvalid, "name a checkpoint, or ask for a kind or a clean one, not both")
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
		if err := ckpt.CheckRunName(r.Run); err != nil {
			return err
		}
	}
	return ckpt.CheckReason(r.Reason)
}

// isOwner says whether s could be an identity that endpoint hands out.
func isOwner(s string) bool {
	if len(s) > 256 {
		return false
	}
	if id, unix := strings.CutPrefix(s, "uid:"); unix {
		return isDigits(id) && len(id) <= 10
	}
	parts, sid := strings.CutPrefix(s, "S-1-")
	if !sid {
		return false
	}
	for part := range strings.SplitSeq(parts, "-") {
		if !isDigits(part) {
			return false
		}
	}
	return true
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
