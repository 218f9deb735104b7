package ckptsidecar

import "strings"

// ChownRequest gives agents of one owner to another: POST /v1/owners/chown.
type ChownRequest struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Agent  string `json:"agent,omitempty"`   // "" means all of them
	Force  bool   `json:"force,omitempty"`   // also while a run has a live owner
	DryRun bool   `json:"dry_run,omitempty"` // change nothing, and report what would be moved
	Reason string `json:"reason,omitempty"`
}

// Chowned lists what was moved or would be moved.
type Chowned struct {
	From   string         `json:"from"`
	To     string         `json:"to"`
	DryRun bool           `json:"dry_run"`
	Agents []ChownedAgent `json:"agents"`
}

// ChownedAgent is an agent that has a new owner.
type ChownedAgent struct {
	Agent       string `json:"agent"`
	Runs        int64  `json:"runs"`
	Checkpoints int64  `json:"checkpoints"`
	StoredBytes int64  `json:"stored_bytes"`
	FilesBytes  int64  `json:"files_bytes"`
}

// Check refuses an invalid request.
func (r *ChownRequest) Check() error {
	for _, owner := range [...]string{r.From, r.To} {
		if !IsOwner(owner) {
			return Errorf(CodeInvalid, "the owner %q is neither uid:NUMBER nor a SID", owner[:min(len(owner), 64)])
		}
	}
	if r.From == r.To {
		return Errorf(CodeInvalid, "from and to are both %s: name two owners", r.From)
	}
	if r.Agent != "" {
		if err := CheckAgentName(r.Agent); err != nil {
			return err
		}
	}
	return CheckReason(r.Reason)
}

// IsOwner reports whether s can be an identity of the operating system: uid:NUMBER, or a SID.
func IsOwner(s string) bool {
	if len(s) > 256 {
		return false
	}
	if id, unix := strings.CutPrefix(s, "uid:"); unix {
		return areDigits(id) && len(id) <= 10
	}
	parts, sid := strings.CutPrefix(s, "S-1-")
	if !sid {
		return false
	}
	for part := range strings.SplitSeq(parts, "-") {
		if !areDigits(part) {
			return false
		}
	}
	return true
}

func areDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
