package spans

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// read converts a span to the form that is kept while it waits.
func (s *Spans) read(ctx context.Context, span observed.Span, content observed.Content) said {
	s.screenNames(&span)
	if !span.Told {
		took := span.Ended.Sub(span.Began.Time).Milliseconds()
		span.DurationMS = &took
	}
	kept := said{Span: span}
	if span.Kind != observed.Tool {
		kept.Args, kept.Result = nil, nil
		return kept
	}
	switch content {
	case observed.None:
		kept.Args, kept.Result = nil, nil
	case observed.Keep:
		s.redact(&kept.Span)
	}
	step := ckpt.Step{Key: span.Key(), Name: span.Name, Args: kept.Args, Result: kept.Result, Error: ckpt.Ref(span.Error), Status: ckpt.StepSucceeded,
		StartedAt: span.Began, EndedAt: span.Ended, Measures: span.Measures}
	if span.Failed {
		step.Status = ckpt.StepFailed
	}
	if print, ok := s.PrintObserved(ctx, &step); ok {
		kept.Sig, kept.Res, kept.Cause, kept.Shape, kept.Effect = print.Sig, print.Res, print.Cause, print.Shape, print.Effect
		kept.Negative, kept.Unparsable = print.Negative, print.Unparsable
	}
	if content != observed.Keep {
		s.key(&kept)
		kept.Args, kept.Result = nil, nil
	}
	return kept
}

// key replaces the fingerprints of a span with ones that only this database can compute, so that
// their readers cannot find the values by trying.
func (s *Spans) key(kept *said) {
	secret := s.Secret("spans")
	for _, print := range []*string{&kept.Sig, &kept.Res, &kept.Cause, &kept.Shape, &kept.Effect} {
		if *print == "" || *print == observer.UnknownCall {
			continue
		}
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(*print))
		*print = hex.EncodeToString(mac.Sum(nil))[:32]
	}
}

// redact replaces what looks like a secret in arguments and results.
func (s *Spans) redact(span *observed.Span) {
	if s.Opt.Secrets == nil {
		return
	}
	for _, value := range []*ckpt.JSON{&span.Args, &span.Result} {
		if *value == nil || len(s.Opt.Secrets.Find(*value, true)) == 0 {
			continue
		}
		clean, _ := s.Opt.Secrets.Redact(*value, true)
		if *value = clean; jsontext.Check(clean) != nil {
			*value = nil
		}
	}
}

// redacted replaces a name that looks like a secret.
const redacted = "redacted"

// maxClean is the most names that are remembered as not secret.
const maxClean = 10_000

// screenNames looks for secrets in the names that are kept of every span.
func (s *Spans) screenNames(span *observed.Span) {
	if s.Opt.Secrets == nil {
		return
	}
	for _, name := range []*string{&span.Name, &span.Error} {
		if *name != "" && !s.isClean(*name) {
			*name = redacted
		}
	}
	for _, name := range []*string{&span.Run, &span.RootAgent, &span.Agent, &span.Service, &span.Call} {
		if *name != "" && !s.isClean(*name) {
			*name = "" // the next best source is used
		}
	}
}

func (s *Spans) isClean(name string) bool {
	if _, known := s.clean.Load(name); known {
		return true
	}
	if len(s.Opt.Secrets.Find([]byte(name), false)) > 0 {
		return false
	}
	s.nameMu.Lock()
	defer s.nameMu.Unlock()
	if s.named++; s.named > maxClean {
		s.clean.Clear()
		s.named = 0
	}
	s.clean.Store(name, true)
	return true
}
