package proxy

import (
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec
	ended    prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "elemental", Subsystem: "gateway_proxy", Name: "requests_total",
			Help: "Requests to the authentication proxy by the class of their answer, 2xx to 5xx, or none.",
		}, []string{"code"}),
		ended: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "elemental", Subsystem: "gateway_proxy", Name: "ended_total",
			Help: "Open requests that were ended because their caller had lost the right to them.",
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.ended} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics of the authentication proxy: %w", err)
		}
	}
	return m, nil
}

// codeClass returns the class of a status code.
func codeClass(code int) string {
	if code == 0 {
		return "none"
	}
	return strconv.Itoa(code/100) + "xx"
}
