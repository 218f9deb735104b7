package daemon

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
)

// metrics are the values that /metrics returns. No label names an agent, an owner or
// anything from a request: the values of labels are the fixed sets of routes, codes,
// kinds and states.
type metrics struct {
	status   func(context.Context) (*ckpt.Status, error)
	stats    func() server.Stats
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	body     prometheus.Histogram
	rules    map[string]bool
}

// scrapeTime is the time limit for database queries of a scrape.
const scrapeTime = 5 * time.Second

// rules are the rules that come with the program. Other rules have names that users or
// agents made up.
func newMetrics(status func(context.Context) (*ckpt.Status, error), stats func() server.Stats, rules []observer.Rule) *metrics {
	m := &metrics{status: status, stats: stats, registry: prometheus.NewRegistry(), rules: map[string]bool{ckpt.RuleSecret: true}}
	for i := range rules {
		m.rules[rules[i].Rule] = true
	}
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ckptsidecar_requests_total", Help: "Answered requests, by call and by error code (ok if there was none).",
	}, []string{"route", "code"})
	m.took = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ckptsidecar_request_seconds", Help: "How long requests took.",
		Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .25, 1, 5, 30},
	}, []string{"route"})
	m.body = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "ckptsidecar_request_bytes", Help: "How large the bodies of requests were.",
		Buckets: prometheus.ExponentialBuckets(256, 4, 10),
	})
	m.registry.MustRegister(m.requests, m.took, m.body, m,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// observe counts one request. A request that reached no route counts as "none", because a
// client's own text must not become a label.
func (m *metrics) observe(o server.Observation) {
	route, code := o.Route, string(o.Code)
	if route == "" {
		route = "none"
	}
	if code == "" {
		code = "ok"
	}
	m.requests.WithLabelValues(route, code).Inc()
	m.took.WithLabelValues(route).Observe(o.Took.Seconds())
	if o.Body > 0 {
		m.body.Observe(float64(o.Body))
	}
}

// gauge is a number that each scrape reads from the status.
type gauge struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*ckpt.Status) float64
}

func counted(name, help string, of func(*ckpt.Status) float64) gauge {
	return gauge{prometheus.NewDesc("ckptsidecar_"+name, help, nil, nil), prometheus.CounterValue, of}
}

func measured(name, help string, of func(*ckpt.Status) float64) gauge {
	return gauge{prometheus.NewDesc("ckptsidecar_"+name, help, nil, nil), prometheus.GaugeValue, of}
}

var gauges = []gauge{
	measured("agents", "Agents that have saved something.", func(s *ckpt.Status) float64 { return float64(s.Agents) }),
	measured("runs", "Runs that are stored.", func(s *ckpt.Status) float64 { return float64(s.Runs) }),
	measured("uncertain_operations", "Operations whose outcome is unknown.",
		func(s *ckpt.Status) float64 { return float64(s.Waiting.UncertainOperations) }),
	measured("prompts_open", "Questions that wait for an answer.", func(s *ckpt.Status) float64 { return float64(s.Waiting.OpenPrompts) }),
	measured("stored_bytes", "Bytes of states, as stored.", func(s *ckpt.Status) float64 { return float64(s.Stored) }),
	measured("database_bytes", "Size of the database file.", func(s *ckpt.Status) float64 { return float64(s.Database.Bytes) }),
	measured("database_free_bytes", "Part of the database file that is free.", func(s *ckpt.Status) float64 { return float64(s.Database.FreeBytes) }),
	measured("database_max_bytes", "Limit of the database file, 0 for none.", func(s *ckpt.Status) float64 { return float64(s.Database.MaxBytes) }),
	measured("disk_free_bytes", "Space that is left for all users, on the disk and below limits.max_database; -1 if it is not known.",
		func(s *ckpt.Status) float64 { return float64(s.Disk.FreeBytes) }),
	measured("disk_floor_bytes", "Free space below which users who store much are refused; 0 for none.",
		func(s *ckpt.Status) float64 { return float64(s.Disk.FloorBytes) }),
	measured("owner_fullest_ratio", "The largest part of limits.owner_bytes that one user has used.", fullestOwner),
	measured("wal_bytes", "Size of the write-ahead log.", func(s *ckpt.Status) float64 { return float64(s.Database.WALBytes) }),
	measured("wal_pending_bytes", "Bytes in the write-ahead log that are not yet in the database file.",
		func(s *ckpt.Status) float64 { return float64(s.Database.WALPending) }),
	measured("wal_checkpoint_failures", "Failures in a row to copy the write-ahead log into the database file.",
		func(s *ckpt.Status) float64 { return float64(s.Database.WALFailures) }),
	measured("wal_checkpoint_time_seconds", "When the write-ahead log was last copied, Unix time.",
		func(s *ckpt.Status) float64 { return unixTime(s.Database.LastWALCheckpoint) }),
	counted("audit_rows_total", "Rows of the audit log.", func(s *ckpt.Status) float64 { return float64(s.Database.AuditRows) }),
	measured("damaged_checkpoints", "Checkpoints that are known to be damaged.", func(s *ckpt.Status) float64 { return float64(s.Database.Damaged) }),
	counted("commits_total", "Commits since the start.", func(s *ckpt.Status) float64 { return float64(s.Writer.Commits) }),
	counted("writes_total", "Writes since the start; a commit carries one or more.",
		func(s *ckpt.Status) float64 { return float64(s.Writer.Operations) }),
	counted("write_retries_total", "Transactions that were retried.", func(s *ckpt.Status) float64 { return float64(s.Writer.Retries) }),
	counted("write_failures_total", "Writes that failed, because of a full disk, a lock, or a fault.",
		func(s *ckpt.Status) float64 { return float64(s.Writer.Failures) }),
	measured("writes_waiting", "Writes that wait for the writer.", func(s *ckpt.Status) float64 { return float64(s.Writer.Waiting) }),
	measured("commit_p50_seconds", "Median time of the last commits.", func(s *ckpt.Status) float64 { return s.Writer.CommitP50 / 1000 }),
	measured("commit_p99_seconds", "99th percentile of the times of the last commits.",
		func(s *ckpt.Status) float64 { return s.Writer.CommitP99 / 1000 }),
	counted("retention_removed_total", "Checkpoints that the retention worker removed by age or budget since the start. Those that saves and prunes removed are not counted.",
		func(s *ckpt.Status) float64 { return float64(s.Worker.Removed) }),
	measured("retention_time_seconds", "When the retention worker last ran, Unix time.",
		func(s *ckpt.Status) float64 { return unixTime(s.Worker.LastRun) }),
	measured("drift_watched_runs", "Runs whose drift detector state is in memory.",
		func(s *ckpt.Status) float64 { return float64(s.Drift.Watched) }),
	measured("backup_time_seconds", "When the newest scheduled backup was made, Unix time, 0 for never.",
		func(s *ckpt.Status) float64 { return unixTime(s.Backup.Last) }),
	measured("backup_interval_seconds", "How often backups are made, 0 for never.",
		func(s *ckpt.Status) float64 { return time.Duration(s.Backup.Interval).Seconds() }),
	measured("backup_bytes", "Size of the newest scheduled backup.", func(s *ckpt.Status) float64 { return float64(s.Backup.LastBytes) }),
	measured("backup_after_failed", "1 if the program backup.after did not take the newest backup.", func(s *ckpt.Status) float64 { return truth(s.Backup.AfterError != "") }),
	measured("backup_drill_interval_seconds", "How often the newest backup is restored and verified on trial, 0 for never.",
		func(s *ckpt.Status) float64 { return time.Duration(s.Backup.DrillInterval).Seconds() }),
	measured("backup_drill_time_seconds", "When a backup was last restored and verified on trial, Unix time, 0 for never.",
		func(s *ckpt.Status) float64 { return unixTime(s.Backup.DrillLast) }),
	measured("backup_drill_failed", "1 if the last backup that was restored on trial was not sound.", func(s *ckpt.Status) float64 { return truth(s.Backup.DrillError != "") }),
	measured("backup_failed", "1 if the last scheduled backup failed.", func(s *ckpt.Status) float64 { return truth(s.Backup.LastError != "") }),
	measured("start_time_seconds", "When the daemon started, Unix time.", func(s *ckpt.Status) float64 { return unixTime(s.StartedAt) }),
}

// fullestOwner is the largest part of a quota that one user has used.
func fullestOwner(s *ckpt.Status) (most float64) {
	for _, q := range s.Quotas {
		if q.MaxBytes > 0 {
			most = max(most, float64(q.Bytes)/float64(q.MaxBytes))
		}
	}
	return most
}

func unixTime(t ckpt.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

var (
	checkpointsDesc = prometheus.NewDesc("ckptsidecar_checkpoints", "Checkpoints that are stored, by kind.", []string{"kind"}, nil)
	stateDesc       = prometheus.NewDesc("ckptsidecar_state", "1 for the daemon's state.", []string{"state"}, nil)
	runsDesc        = prometheus.NewDesc("ckptsidecar_runs_by_status", "Runs that are stored, by status.", []string{"status"}, nil)
	connectionsDesc = prometheus.NewDesc("ckptsidecar_connections", "Connections that are open.", nil, nil)
	inWorkDesc      = prometheus.NewDesc("ckptsidecar_requests_in_work", "Requests that are being answered.", nil, nil)
	findingsDesc    = prometheus.NewDesc("ckptsidecar_findings_open",
		"Drift findings that are open, by rule (own for rules of users and agents) and severity.", []string{"rule", "severity"}, nil)
	spansDesc = prometheus.NewDesc("ckptsidecar_otlp_spans_total",
		"OpenTelemetry's spans that were received, by result; late spans also count as steps or usage.", []string{"result"}, nil)
	noticesDesc = prometheus.NewDesc("ckptsidecar_notices", "Stored notices for hooks, by hook and state.", []string{"hook", "state"}, nil)
	droppedDesc = prometheus.NewDesc("ckptsidecar_notices_dropped_total", "Notices dropped because the queue was full.", nil, nil)
	panicsDesc  = prometheus.NewDesc("ckptsidecar_panics_total", "Requests that failed because of a bug in the daemon.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range gauges {
		ch <- g.desc
	}
	for _, d := range []*prometheus.Desc{checkpointsDesc, stateDesc, runsDesc, connectionsDesc, inWorkDesc, panicsDesc,
		findingsDesc, spansDesc, noticesDesc, droppedDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector: it asks the store once for each scrape. If the
// store does not answer, the numbers of the store are left out, and the others are still
// reported.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	stats := m.stats()
	ch <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(stats.Connections))
	ch <- prometheus.MustNewConstMetric(inWorkDesc, prometheus.GaugeValue, float64(stats.InWork))
	ch <- prometheus.MustNewConstMetric(panicsDesc, prometheus.CounterValue, float64(stats.Panics))
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	status, err := m.status(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(stateDesc, err)
		return
	}
	for _, g := range gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, g.kind, g.of(status))
	}
	for _, kind := range ckpt.Kinds {
		ch <- prometheus.MustNewConstMetric(checkpointsDesc, prometheus.GaugeValue, float64(status.Counts[kind]), string(kind))
	}
	for runStatus, n := range status.Waiting.RunsByStatus {
		ch <- prometheus.MustNewConstMetric(runsDesc, prometheus.GaugeValue, float64(n), string(runStatus))
	}
	for key, n := range m.findings(status) {
		ch <- prometheus.MustNewConstMetric(findingsDesc, prometheus.GaugeValue, float64(n), key[0], key[1])
	}
	spans := &status.OTLP.Spans
	for result, n := range map[string]int64{"step": spans.Step, "usage": spans.Usage, "ignored": spans.Ignored, "duplicate": spans.Duplicate,
		"late": spans.Late, "refused": spans.Refused} {
		ch <- prometheus.MustNewConstMetric(spansDesc, prometheus.CounterValue, float64(n), result)
	}
	for _, h := range status.Notify.Hooks {
		for state, n := range map[string]int64{"pending": h.Pending, "delivered": h.Delivered, "dead": h.Dead} {
			ch <- prometheus.MustNewConstMetric(noticesDesc, prometheus.GaugeValue, float64(n), h.Name, state)
		}
	}
	ch <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, float64(status.Notify.Dropped))
	for _, state := range []string{"ready", "degraded", "read_only", "failed"} {
		ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, truth(state == status.State), state)
	}
}

// findings counts the open findings by rule and severity. Names that users or agents made
// up must not become labels.
func (m *metrics) findings(status *ckpt.Status) map[[2]string]int64 {
	counts := map[[2]string]int64{}
	for _, f := range status.Drift.Findings {
		rule := f.Rule
		if !m.rules[rule] {
			rule = "own"
		}
		counts[[2]string{rule, string(f.Severity)}] += f.Count
	}
	return counts
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
