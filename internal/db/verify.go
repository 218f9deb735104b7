package db

import (
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// VerifyChain reads the whole audit log and checks its chain. Only an administrator may call it,
// because the log covers all users. Only one check runs at a time.
func (s *Store) VerifyChain(ctx context.Context, sc ckpt.Scope) (*survey.Verified, error) {
	e := ledger.Entry(sc, "verify", "")
	if !sc.Caller.Admin || sc.Target != "" {
		err := ckpt.Errorf(ckpt.CodeDenied, "only an administrator may verify the audit log: it covers every owner, so leave the owner out")
		s.RefusedBefore(e, err)
		return nil, err
	}
	if !s.verifying.TryLock() {
		return nil, &ckpt.Error{Code: ckpt.CodeBusy,
			Message: "a verification of the audit log is already running: try again when it ends", RetryAfter: time.Second}
	}
	defer s.verifying.Unlock()
	began := time.Now()
	report, err := audit.VerifyChain(ctx, s.RO)
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	v := &survey.Verified{
		At: ckpt.At(s.Opt.Now()), TookMS: time.Since(began).Milliseconds(),
		OK: len(report.Problems) == 0, Problems: []string{}, Rows: report.AuditRows, Head: report.AuditHead,
	}
	for _, p := range report.Problems[:min(len(report.Problems), survey.MaxProblems)] {
		v.Problems = append(v.Problems, p.String())
	}
	e.Owner, e.Detail = "", map[string]any{"rows": v.Rows, "problems": len(report.Problems)}
	s.Record(e)
	return v, nil
}
