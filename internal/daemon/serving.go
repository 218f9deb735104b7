package daemon

import (
	"context"
	"os"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// newServer creates the API server for the store.
func (s *service) newServer() *server.Server {
	c := &s.daemon.Config
	served := &served{Service: s.store, service: s, started: ckpt.At(s.daemon.Now())}
	store := server.StoreOf(s.store)
	store.Service = served
	var api *server.Server
	policy := ckpt.DefaultPolicy()
	m := newMetrics(
		func(ctx context.Context) (*ckpt.Status, error) {
			return served.Status(ctx, ckpt.Scope{Caller: ckpt.Caller{Owner: "daemon", Admin: true}})
		},
		func() server.Stats { return api.Stats() }, s.drift.Rules(&policy))
	if fleet := s.fleet.Metrics(); fleet != nil {
		m.registry.MustRegister(fleet)
	}
	s.metrics = m.handler()
	s.tellSettings()
	api = server.NewServer(server.Options{
		Store:    store,
		Log:      s.log,
		Metrics:  s.metrics,
		Version:  s.daemon.Version,
		Settings: func() []survey.Setting { return *s.settings.Load() },
		Observe:  m.observe,
		Durable:  s.fleet.Durable,
		Before:   s.fleet.Before,
		Lease:    s.fleet.TellLease,
		Place:    s.fleet.TellPlace,
		Began:    s.fleet.Began,
		Fleet:    s.fleet.API(),
		Limits: server.Limits{
			MaxBody:              int64(c.MaxBody),
			Connections:          c.Connections,
			OwnerConnections:     c.OwnerConnections,
			OwnerWritesPerSecond: c.OwnerWritesPerSecond,
		},
	})
	return api
}

// tellSettings stores the current settings for status requests.
func (s *service) tellSettings() {
	list := told(&s.daemon.Config)
	s.settings.Store(&list)
}

// served is how the daemon is, as the API sees it. Its status also has the parts that only the
// daemon knows.
type served struct {
	server.Service
	service *service
	started ckpt.Time
}

// Status returns the store's status with the daemon's additions.
func (v *served) Status(ctx context.Context, sc ckpt.Scope) (*ckpt.Status, error) {
	st, err := v.Service.Status(ctx, sc)
	if err != nil {
		return nil, err
	}
	st.PID, st.StartedAt = os.Getpid(), v.started
	st.Endpoint = v.service.endpoint
	st.Worker = v.service.worker.Status()
	st.OTLP = v.service.otlpStatus()
	if sc.Caller.Admin {
		v.settings(st)
		v.backups(st)
		v.fleet(st)
		if err := v.notify(ctx, st); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// settings adds the mistakes of settings that have changed since the start: the next start would fail.
func (v *served) settings(st *ckpt.Status) {
	load := v.service.daemon.Load
	if load == nil {
		return
	}
	if _, err := load(); err != nil {
		degrade(st, "the settings are wrong, so the next start fails: "+oneLine(err)+"; the old settings are in effect; correct the file, and reload the daemon")
	}
}

// degrade adds problems to a status. A daemon that was ready is degraded by them.
func degrade(st *ckpt.Status, problems ...string) {
	st.Problems = append(st.Problems, problems...)
	if len(problems) > 0 && st.State == "ready" {
		st.State = "degraded"
	}
}

// oneLine is the text of an error that may have several lines.
func oneLine(err error) string {
	return strings.Join(strings.Split(strings.TrimSpace(err.Error()), "\n"), "; ")
}

// backups adds the status of backups, and their problem.
func (v *served) backups(st *ckpt.Status) {
	st.Backup = v.service.backups.Status()
	degrade(st, v.service.backups.problems(st.Backup, v.service.daemon.Now())...)
}

// fleet adds the reason why nothing is shipped.
func (v *served) fleet(st *ckpt.Status) {
	if problem := v.service.fleet.Problem(); problem != "" {
		degrade(st, problem)
	}
}

// notify adds the status of notices, and the hooks that cannot be reached.
func (v *served) notify(ctx context.Context, st *ckpt.Status) error {
	told, err := v.service.notifyStatus(ctx)
	if err != nil {
		return err
	}
	st.Notify = *told
	degrade(st, notifyProblems(told, v.service.daemon.Now())...)
	return nil
}
