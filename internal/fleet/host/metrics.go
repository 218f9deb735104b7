package host

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrapeTime is how long the database queries of one scrape may take.
const scrapeTime = 5 * time.Second

var (
	lagDesc = prometheus.NewDesc("ckptsidecar_fleet_lag_seconds",
		"Age of the oldest row of the audit log that the fleet's engine lacks.", nil, nil)
	rowsDesc  = prometheus.NewDesc("ckptsidecar_fleet_unshipped_rows", "Rows of the audit log that the fleet's engine lacks.", nil, nil)
	leaseDesc = prometheus.NewDesc("ckptsidecar_fleet_lease_left_seconds",
		"How long this host still owns its runs in the fleet; 0 when another host may claim them.", nil, nil)
	fencedDesc = prometheus.NewDesc("ckptsidecar_fleet_fenced_total",
		"Runs of this host that other hosts of the fleet were found to have claimed, since the daemon began.", nil, nil)
	strandsDesc = prometheus.NewDesc("ckptsidecar_fleet_strands",
		"Runs that other hosts have claimed and of which only this host has checkpoints that an agent was told to be safe.", nil, nil)
	batchDesc   = prometheus.NewDesc("ckptsidecar_fleet_batch_seconds", "How long the last batch to the fleet's engine took.", nil, nil)
	batchesDesc = prometheus.NewDesc("ckptsidecar_fleet_batches_total", "Batches that the fleet's engine has taken since the start.", nil, nil)
	failingDesc = prometheus.NewDesc("ckptsidecar_fleet_failing", "1 where the last attempt to ship to the fleet's engine failed.", nil, nil)

	backDesc = prometheus.NewDesc("ckptsidecar_fleet_went_back_total",
		"How often the fleet's engine had lost what it had acknowledged.", nil, nil)
	erasuresDesc = prometheus.NewDesc("ckptsidecar_fleet_erasures_waiting", "Erasures of the fleet that some host has not confirmed.", nil, nil)
)

// behind returns how many rows are newer than a mark, and for how many seconds the oldest
// of them has waited.
func (s *shipper) behind(ctx context.Context, mark int64) (rows int64, lag float64, err error) {
	rows, oldest, err := s.reader.Behind(ctx, mark)
	if err == nil && rows > 0 {
		lag = max(0, time.Since(time.UnixMilli(oldest)).Seconds())
	}
	return rows, lag, err
}

// Describe implements prometheus.Collector.
func (s *shipper) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{lagDesc, leaseDesc, fencedDesc, strandsDesc, rowsDesc,
		batchDesc, batchesDesc, failingDesc, backDesc, erasuresDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It queries once a scrape what has not been
// shipped.
func (s *shipper) Collect(ch chan<- prometheus.Metric) {
	t := s.told()
	ch <- prometheus.MustNewConstMetric(batchDesc, prometheus.GaugeValue, t.took.Seconds())
	ch <- prometheus.MustNewConstMetric(batchesDesc, prometheus.CounterValue, float64(t.batches))
	failing := 0.0
	if t.failing {
		failing = 1
	}
	ch <- prometheus.MustNewConstMetric(failingDesc, prometheus.GaugeValue, failing)
	ch <- prometheus.MustNewConstMetric(backDesc, prometheus.CounterValue, float64(t.wentBack))
	ch <- prometheus.MustNewConstMetric(erasuresDesc, prometheus.GaugeValue, float64(len(t.erasures)))
	if s.keeper != nil {
		ch <- prometheus.MustNewConstMetric(leaseDesc, prometheus.GaugeValue, s.keeper.lease.Left().Seconds())
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	ch <- prometheus.MustNewConstMetric(fencedDesc, prometheus.CounterValue, float64(s.fenced.Load()))
	if all, err := s.strands(ctx); err == nil {
		ch <- prometheus.MustNewConstMetric(strandsDesc, prometheus.GaugeValue, float64(len(all)))
	}
	rows, lag, err := s.behind(ctx, t.mark.N)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(rowsDesc, err)
		return
	}
	ch <- prometheus.MustNewConstMetric(rowsDesc, prometheus.GaugeValue, float64(rows))
	ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, lag)
}
