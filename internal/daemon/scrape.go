package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/net/netutil"
)

// scrapes answers Prometheus at a loopback port. The port returns only the metrics: they
// name no agent, no owner, and nothing from a request.
type scrapes struct {
	listener net.Listener
	server   *http.Server
}

// The limits of the port: a scraper needs one connection and a short request.
const (
	scrapeHeaders     = 8 << 10
	scrapePatience    = 10 * time.Second
	scrapeConnections = 8
)

// openScrapes opens the port that the settings name, if any.
func (s *service) openScrapes(context.Context) error {
	if s.daemon.Config.MetricsListen == "" {
		return nil
	}
	listener, err := net.Listen("tcp", s.daemon.Config.MetricsListen)
	if err != nil {
		return fmt.Errorf("metrics.listen: %w; the service of systemd needs more rights for this, see docs/OPERATIONS.md", err)
	}
	s.scrapes.listener = listener
	return nil
}

// startScrapes starts to answer at the port.
func (s *service) startScrapes(metrics http.Handler) {
	if s.scrapes.listener == nil {
		return
	}
	s.scrapes.server = &http.Server{
		Handler: onlyMetrics(metrics), MaxHeaderBytes: scrapeHeaders, ReadTimeout: scrapePatience, IdleTimeout: time.Minute,
		WriteTimeout: scrapeTime + scrapePatience,
	}
	s.log.Info("metrics for Prometheus", "address", "http://"+s.scrapes.listener.Addr().String()+"/metrics")
	go func() {
		err := s.scrapes.server.Serve(netutil.LimitListener(s.scrapes.listener, scrapeConnections))
		if !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the metrics are no longer served at their port", "error", err)
		}
	}()
}

// closeScrapes closes the port.
func (s *service) closeScrapes() {
	if s.scrapes.server != nil {
		_ = s.scrapes.server.Close()
	}
	if s.scrapes.listener != nil {
		_ = s.scrapes.listener.Close()
	}
}

// onlyMetrics is the only route of the port. A page in a browser can be made to call this
// machine under another name, so the host name in the request must be a name of this
// machine.
func onlyMetrics(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if !namesThisMachine(r.Host) {
			http.Error(w, "the Host of the request must be localhost or a loopback address", http.StatusMisdirectedRequest)
			return
		}
		metrics.ServeHTTP(w, r)
	})
	return mux
}

func namesThisMachine(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	address, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && address.IsLoopback()
}

// metrics refuses a port that strangers can reach.
func (k *checking) metrics() {
	listen := k.c.MetricsListen
	if listen == "" {
		return
	}
	if !isLoopbackPort(listen) {
		k.bad("metrics.listen", "is %q: give a loopback address with a port, such as 127.0.0.1:9464", listen)
	}
}
