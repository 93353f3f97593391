package direct

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

type metrics struct{ requests *prometheus.CounterVec }

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "elemental", Subsystem: "gateway_direct", Name: "requests_total",
		Help: "Requests for kubeconfigs with a certificate by the class of their answer, 2xx to 5xx.",
	}, []string{"code"})}
	if err := registry.Register(m.requests); err != nil {
		return nil, fmt.Errorf("registering metrics of direct access: %w", err)
	}
	return m, nil
}

// count counts a request that had this error, or none.
func (m *metrics) count(err error) {
	code := http.StatusOK
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		code = int(status.Status().Code)
	case err != nil:
		code = http.StatusInternalServerError
	}
	m.requests.WithLabelValues(strconv.Itoa(code/100) + "xx").Inc()
}
